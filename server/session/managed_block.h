// The managed variables of a library. They lie in one allocation of the session's pinned memory,
// which the client maps like other pinned memory. A library that is loaded for several devices of a
// session has one block.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/managed_variables.h"
#include "server/shared_memory/shared_region.h"

namespace detshare {

class PinnedMemory;

struct ManagedBlock {
  struct Variable {
    std::string name;
    uint64_t address = 0, bytes = 0;
  };
  PinnedWindow::Allocation memory;
  std::vector<Variable> variables;

  const Variable* Find(std::string_view name) const;
};

// Creates a block for these variables. The block's destructor frees the memory, so no work may use
// it by then. CUDA_ERROR_OUT_OF_MEMORY.
absl::StatusOr<std::shared_ptr<const ManagedBlock>> MakeManagedBlock(
    PinnedMemory& pinned, absl::Span<const ManagedVariable> variables);

// Returns the variables' places in a block that was made for the same code.
// CUDA_ERROR_NOT_SUPPORTED when the block was made for other variables: those of another image, or
// of code for another architecture.
absl::StatusOr<ManagedPlaces> PlacesIn(const ManagedBlock& block,
                                       absl::Span<const ManagedVariable> variables);

}  // namespace detshare
