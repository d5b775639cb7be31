// The managed variables of a library. They lie in one allocation of the session: managed memory whose
// pages move, or else pinned memory. The client maps it as it maps other memory of that kind. A library
// that is loaded for several devices of a session has one block.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/managed_variables.h"
#include "proto/wire/library.h"

namespace detshare {

class SessionMemory;
struct SessionDevice;

struct ManagedBlock {
  struct Variable {
    std::string name;
    uint64_t address = 0, bytes = 0;
  };
  uint64_t address = 0, bytes = 0;      // of the allocation
  uint32_t file = wire::kManagedRange;  // of pinned memory
  std::vector<Variable> variables;

  const Variable* Find(std::string_view name) const;
};

// Creates a block for these variables, which are zero. With `moves`, their pages move if the session
// has such memory. The block's destructor frees the memory, so no work may use it by then.
// CUDA_ERROR_OUT_OF_MEMORY.
absl::StatusOr<std::shared_ptr<const ManagedBlock>> MakeManagedBlock(
    SessionMemory& memory, SessionDevice& device, absl::Span<const ManagedVariable> variables,
    bool moves);

// Returns the variables' places, without `initialize`, in a block that was made for the same code.
// CUDA_ERROR_NOT_SUPPORTED when the block was made for other variables: those of another image, or
// of code for another architecture.
absl::StatusOr<ManagedPlaces> PlacesIn(const ManagedBlock& block,
                                       absl::Span<const ManagedVariable> variables);

}  // namespace detshare
