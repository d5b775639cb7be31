// What a tenant is told of a device's memory.
#pragma once

#include <memory>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/quota.h"

namespace detshare {

// The one answer of cuMemGetInfo and of NVML. A tenant with a limit of its own sees nothing of its
// neighbours: the limit, and what it has not used of that.
inline Device::Memory VisibleMemory(const Device& device, const std::shared_ptr<Quota>& quota) {
  Device::Memory memory = device.memory();
  if (quota == nullptr || quota->limit() >= memory.total) return memory;
  memory.total = quota->limit();
  memory.free = quota->left();
  return memory;
}

}  // namespace detshare
