// Creates and ends contexts: primary contexts, those that programs create, and aliases for green
// contexts. Any thread may call these functions.
#pragma once

#include <cstdint>

#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/ring_abi.h"

namespace detshare::shim {

// Do what cuCtxCreate and cuCtxDestroy do. CreateContext pushes the new context on the calling
// thread's stack. DestroyContext waits for the context's work. CUDA_ERROR_INVALID_CONTEXT: `handle`
// is not a context that the program created.
CUresult CreateContext(uint16_t device, uint32_t flags, uint32_t api_version, CUcontext* handle);
CUresult DestroyContext(CUcontext handle);

// Makes a further context for the objects of a primary context, which the caller has retained. The
// alias has its own handle, storage and default streams.
CUresult CreateAlias(Context& primary, Context** made);
CUresult DestroyAlias(Context& alias);
// A number that no other context of the process has.
ContextId NextContextId();

// Primary contexts. `device` is valid. The context ends with its last release, or when it is reset;
// both then wait for its work. CUDA_ERROR_INVALID_CONTEXT: it is not retained.
CUresult RetainPrimary(uint16_t device, CUcontext* handle);
CUresult ReleasePrimary(uint16_t device);
CUresult ResetPrimary(uint16_t device);
CUresult SetPrimaryFlags(uint16_t device, uint32_t flags);
uint32_t PrimaryFlags(uint16_t device);
bool PrimaryActive(uint16_t device);

// Whether `flags` are flags of cuCtxCreate.
bool ContextFlagsValid(uint32_t flags);

}  // namespace detshare::shim
