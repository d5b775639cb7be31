// How much memory the host has for this process.
#pragma once

#include <cstdint>

namespace detshare {

// Bytes: of the machine, or of the control group that the process is in, if that may use less.
uint64_t HostMemoryBytes();

}  // namespace detshare
