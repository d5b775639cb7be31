// Hints of launches and streams, as programs give them.
#pragma once

#include <cstdint>

#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/launch_hints.h"

namespace detshare::shim {

// Adds the attribute to `hints` when it is a hint. CUDA_ERROR_INVALID_VALUE for values that it
// cannot have; CUDA_ERROR_NOT_FOUND when the attribute is none.
CUresult AddHint(uint16_t device, uint32_t attribute, const CUlaunchAttributeValue& value,
                 wire::LaunchHints* hints);

// Whether AddHint asks the device for what the attribute may be.
inline bool DependsOnDevice(uint32_t attribute) {
  return attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
         attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
}

// A launch on a stream: what the launch does not say for itself is as the stream has it.
wire::LaunchHints Merge(const wire::LaunchHints& launch, const wire::LaunchHints& stream);

// What a stream, or a kernel node, answers for an attribute of these.
void GetHint(const wire::LaunchHints& hints, CUlaunchAttributeID attribute,
             CUlaunchAttributeValue* value);

}  // namespace detshare::shim
