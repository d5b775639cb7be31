// Reads and merges the hints of launches and streams. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/launch_hints.h"

namespace detshare::shim {

// Adds the attribute to `hints` if it is a hint. CUDA_ERROR_INVALID_VALUE: the hint cannot have
// this value. CUDA_ERROR_NOT_FOUND: the attribute is not a hint.
CUresult AddHint(uint16_t device, uint32_t attribute, const CUlaunchAttributeValue& value,
                 wire::LaunchHints* hints);

// Whether the device decides which values AddHint accepts for the attribute.
inline bool DependsOnDevice(uint32_t attribute) {
  return attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
         attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
}

// The hints of a launch on a stream: the launch's own, and the stream's for all others.
wire::LaunchHints Merge(const wire::LaunchHints& launch, const wire::LaunchHints& stream);

// The value that a stream or a kernel node returns for an attribute.
void GetHint(const wire::LaunchHints& hints, CUlaunchAttributeID attribute,
             CUlaunchAttributeValue* value);

}  // namespace detshare::shim
