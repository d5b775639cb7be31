// What a tenant is told of a device's memory.
#pragma once

#include "coroutine_runtime/device.h"

namespace detshare {

// The one answer of cuMemGetInfo and of NVML.
inline Device::Memory VisibleMemory(const Device& device) { return device.memory(); }

}  // namespace detshare
