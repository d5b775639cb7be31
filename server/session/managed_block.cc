#include "server/session/managed_block.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/session/managed_ranges.h"
#include "server/session/pinned_memory.h"
#include "server/session/session_memory.h"

namespace detshare {
namespace {

// Programs access variables in wider units than their types, since NVIDIA's driver aligns them to more
// than they ask for.
constexpr uint64_t kMinAlignment = 256, kMaxAlignment = 4096;

}  // namespace

const ManagedBlock::Variable* ManagedBlock::Find(std::string_view name) const {
  const auto found = std::find_if(variables.begin(), variables.end(),
                                  [&](const Variable& variable) { return variable.name == name; });
  return found != variables.end() ? &*found : nullptr;
}

absl::StatusOr<std::shared_ptr<const ManagedBlock>> MakeManagedBlock(
    SessionMemory& memory, SessionDevice& device, absl::Span<const ManagedVariable> variables,
    bool moves) {
  ManagedBlock block;
  uint64_t end = 0;
  for (const ManagedVariable& variable : variables) {
    const uint64_t unit = std::clamp(variable.alignment, kMinAlignment, kMaxAlignment);
    const uint64_t begin = (end + unit - 1) / unit * unit;
    if (__builtin_add_overflow(begin, variable.bytes, &end) || end > INT64_MAX)
      return CudaError(kCudaErrorOutOfMemory, "managed variables that are too large");
    block.variables.push_back({variable.name, begin, variable.bytes});
  }
  end = std::max<uint64_t>(end, 1);
  absl::StatusOr<ManagedMemory::Range> range = absl::UnavailableError("not wanted");
  if (moves) range = memory.managed().Allocate(device, end);
  if (range.ok()) {
    block.address = range->address;
    block.bytes = range->bytes;
  } else {
    DETSHARE_ASSIGN_OR_RETURN(const PinnedMemory::Allocation pinned, memory.pinned().Allocate(end));
    memset(reinterpret_cast<void*>(pinned.address), 0, end);
    block.address = pinned.address;
    block.bytes = pinned.file_bytes;
    block.file = pinned.file;
  }
  for (ManagedBlock::Variable& variable : block.variables) variable.address += block.address;
  return std::shared_ptr<const ManagedBlock>(new ManagedBlock(std::move(block)),
                                             [&memory](const ManagedBlock* ended) {
                                               if (ended->file == wire::kManagedRange) {
                                                 memory.managed().Free(ended->address);
                                               } else {
                                                 memory.pinned().Free(ended->address);
                                               }
                                               delete ended;
                                             });
}

absl::StatusOr<ManagedPlaces> PlacesIn(const ManagedBlock& block,
                                       absl::Span<const ManagedVariable> variables) {
  const bool same =
      std::equal(block.variables.begin(), block.variables.end(), variables.begin(), variables.end(),
                 [](const ManagedBlock::Variable& has, const ManagedVariable& wanted) {
                   return has.name == wanted.name && has.bytes == wanted.bytes &&
                          (wanted.alignment == 0 || has.address % wanted.alignment == 0);
                 });
  if (!same)
    return CudaError(kCudaErrorNotSupported, "managed variables that differ between devices");
  ManagedPlaces places;
  for (const ManagedBlock::Variable& variable : block.variables)
    places.addresses.push_back(variable.address);
  return places;
}

}  // namespace detshare
