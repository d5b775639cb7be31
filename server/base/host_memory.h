// Tells how much memory the host has for this process.
#pragma once

#include <cstdint>

namespace detshare {

// Returns the bytes of the machine's memory, or the limit of the process's control group if that is
// lower.
uint64_t HostMemoryBytes();

}  // namespace detshare
