// Attributes of a device.
#pragma once

#include <cstdint>

#include "coroutine_runtime/device.h"

namespace detshare {

// `attribute` is a CUdevice_attribute. Returns 0 if the device does not know it or it is negative.
inline uint64_t AttributeOf(const DeviceProperties& properties, int attribute) {
  const auto found = properties.attributes.find(attribute);
  return found == properties.attributes.end() || found->second < 0
             ? 0
             : static_cast<uint64_t>(found->second);
}

}  // namespace detshare
