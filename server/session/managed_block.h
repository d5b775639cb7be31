// The managed variables of a library: one piece of the session's pinned memory, which the client
// maps as it maps other pinned memory. Loaded for several devices of a session, a library has one.
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

// A new block for these variables. It gives its memory back when it ends, so that no work may touch
// it then. CUDA_ERROR_OUT_OF_MEMORY.
absl::StatusOr<std::shared_ptr<const ManagedBlock>> MakeManagedBlock(
    PinnedMemory& pinned, absl::Span<const ManagedVariable> variables);

// Where they are in a block that was made for the same code. CUDA_ERROR_NOT_SUPPORTED when it was
// made for other variables: of another image, or of code for another architecture.
absl::StatusOr<ManagedPlaces> PlacesIn(const ManagedBlock& block,
                                       absl::Span<const ManagedVariable> variables);

}  // namespace detshare
