// This process's mappings of the daemon's managed memory, whose pages move between CPU and GPU
// (proto/wire/memory.h, cuMemAllocManaged).
#pragma once

#include <cstdint>

#include "client_shim/objects/objects.h"

namespace detshare::shim {

struct ManagedMapping {
  uint64_t address = 0, bytes = 0;
};

// Allocates at least `bytes` in the context and maps them. Returns false if the daemon does not offer
// such memory, has no room for it, or something else is at its addresses here. Any thread.
bool MapManaged(Context& context, uint64_t bytes, ManagedMapping* mapping);

}  // namespace detshare::shim
