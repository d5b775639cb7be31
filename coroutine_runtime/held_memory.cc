#include "coroutine_runtime/held_memory.h"

#include <cstdint>

namespace detshare {
namespace {

// Whether the space contains the box: from `address` to its last byte.
bool Holds(const AddressSpace& space, DeviceAddress address, uint64_t width, uint64_t height,
           uint64_t depth, uint64_t pitch, uint64_t slice, bool write) {
  if (width == 0 || height == 0 || depth == 0) return true;
  return space.Contains(address, (depth - 1) * slice + (height - 1) * pitch + width, write);
}

}  // namespace

bool HoldsMemoryOf(const AddressSpace& space, const CopyRequest& copy) {
  const AddressSpace& to = copy.destination_space != nullptr ? *copy.destination_space : space;
  const AddressSpace& from = copy.source_space != nullptr ? *copy.source_space : space;
  return (copy.destination_array.array != nullptr ||
          Holds(to, copy.destination, copy.width, copy.height, copy.depth, copy.destination_pitch,
                copy.destination_slice, /*write=*/true)) &&
         (copy.source_array.array != nullptr || copy.inline_source ||
          Holds(from, copy.source, copy.width, copy.height, copy.depth, copy.source_pitch,
                copy.source_slice, /*write=*/false));
}

bool HoldsMemoryOf(const AddressSpace& space, const FillRequest& fill) {
  return Holds(space, fill.address, fill.width * static_cast<uint64_t>(fill.element_bytes),
               fill.height, 1, fill.pitch, 0, /*write=*/true);
}

bool HoldsMemoryOf(const AddressSpace& space, const MemoryOp& operation) {
  const auto bytes = static_cast<uint64_t>(operation.bytes());
  return bytes == 0 || space.Contains(operation.address, bytes, operation.is_write());
}

}  // namespace detshare
