// The life of contexts: primary ones, made ones, and what goes with them.
#pragma once

#include <cstdint>

#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/ring_abi.h"

namespace detshare::shim {

CUresult CreateContext(uint16_t device, uint32_t flags, uint32_t api_version, CUcontext* handle);
CUresult DestroyContext(CUcontext handle);

// A further context for what belongs to a primary context, which is retained: it has its own
// handle, storage and default streams.
CUresult CreateAlias(Context& primary, Context** made);
CUresult DestroyAlias(Context& alias);
// Unique among the contexts of the process.
ContextId NextContextId();

// Primary contexts. `device` is valid.
CUresult RetainPrimary(uint16_t device, CUcontext* handle);
CUresult ReleasePrimary(uint16_t device);
CUresult ResetPrimary(uint16_t device);
CUresult SetPrimaryFlags(uint16_t device, uint32_t flags);
bool PrimaryActive(uint16_t device);

// Whether `flags` are flags of cuCtxCreate.
bool ContextFlagsValid(uint32_t flags);

}  // namespace detshare::shim
