// This process's mappings of the daemon's managed memory, whose pages move between CPU and GPU
// (proto/wire/memory.h, cuMemAllocManaged).
#pragma once

#include <cstdint>

#include "client_shim/objects/objects.h"

namespace detshare::shim {

struct ManagedMapping {
  uint64_t address = 0, bytes = 0;
};

// Whether the daemon offers such memory.
bool ManagedPagesMove();

// Allocates at least `bytes` in the context and maps them. Returns false if the daemon does not offer
// such memory, has no room for it, or something else is at its addresses here. Any thread.
bool MapManaged(Context& context, uint64_t bytes, ManagedMapping* mapping);

// The process exits. If it has no work, nothing needs to keep its memory.
void EndManagedMappings();

// Maps memory that the daemon has allocated. Returns false if that fails.
bool MapManagedRange(const ManagedMapping& range);

}  // namespace detshare::shim
