// The sizes of a device's memory that a tenant sees.
#pragma once

#include <memory>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/quota.h"

namespace detshare {

// The result of both cuMemGetInfo and NVML. A tenant whose limit is below the device's memory sees
// the limit as the total, and the unused part of the limit as free. It sees nothing of its
// neighbours.
inline Device::Memory VisibleMemory(const Device& device, const std::shared_ptr<Quota>& quota) {
  Device::Memory memory = device.memory();
  if (quota == nullptr || quota->limit() >= memory.total) return memory;
  memory.total = quota->limit();
  memory.free = quota->left();
  return memory;
}

}  // namespace detshare
