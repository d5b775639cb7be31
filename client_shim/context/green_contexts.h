// Green contexts of the program's own: contexts that share everything with the primary context, and
// are described by the SMs that the program asked for. The daemon alone decides on which SMs work
// runs, so they confine nothing.
#pragma once

#include <atomic>
#include <cstdint>

#include "client_shim/base/handle_table.h"
#include "client_shim/context/sm_resources.h"
#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

struct GreenContext {
  std::atomic<uint64_t> handle{0};  // CUgreenCtx
  uint32_t index = 0;
  uint64_t id = 0;             // cuGreenCtxGetId
  Context* context = nullptr;  // what cuCtxFromGreenCtx gives; it has its primary context's id
  SmSet sms;
};

HandleTable<GreenContext>& green_contexts();
GreenContext* FindGreenContext(CUgreenCtx handle);
SmTopology TopologyOf(uint16_t device);

// Retains the primary context. `sms`: of that device.
CUresult CreateGreenContext(uint16_t device, const SmSet& sms, CUgreenCtx* handle);
// Releases it. Streams that were made in the green context are not to be found any more.
CUresult DestroyGreenContext(CUgreenCtx handle);

}  // namespace detshare::shim
