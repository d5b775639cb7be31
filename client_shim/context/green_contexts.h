// The program's green contexts. They share everything with the primary context, and they record the
// SMs that the program asked for. They confine no work, because only the daemon decides on which
// SMs work runs.
#pragma once

#include <atomic>
#include <cstdint>

#include "client_shim/base/handle_table.h"
#include "client_shim/context/sm_resources.h"
#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// A CUgreenCtx.
struct GreenContext {
  std::atomic<uint64_t> handle{0};  // CUgreenCtx
  uint32_t index = 0;
  uint64_t id = 0;             // cuGreenCtxGetId
  Context* context = nullptr;  // the result of cuCtxFromGreenCtx; it has its primary context's id
  SmSet sms;
};

HandleTable<GreenContext>& green_contexts();
// Null if there is no such green context.
GreenContext* FindGreenContext(CUgreenCtx handle);
SmTopology TopologyOf(uint16_t device);

// Retains the primary context. `sms` belongs to `device`.
CUresult CreateGreenContext(uint16_t device, const SmSet& sms, CUgreenCtx* handle);
// Releases the primary context. Streams that were made in the green context are no longer found.
// CUDA_ERROR_INVALID_CONTEXT: no such green context.
CUresult DestroyGreenContext(CUgreenCtx handle);

}  // namespace detshare::shim
