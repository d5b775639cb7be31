// Adds the work of capturing streams to their graphs as nodes. Each call that gives a stream work
// calls one of these functions instead. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client_shim/objects/objects.h"
#include "client_shim/work/copy.h"
#include "client_shim/work/host_functions.h"
#include "client_shim/work/launch.h"

namespace detshare::shim {

// The caller has checked the launch.
CUresult CaptureLaunch(Stream& stream, CUfunction function, const KernelInstance& instance,
                       const LaunchRequest& launch, const LaunchEvents* events, void** params,
                       const void* buffer, size_t buffer_bytes);
CUresult CaptureCopy(Stream& stream, const PitchedPlace& to, const PitchedPlace& from,
                     uint64_t width, uint64_t height, uint64_t depth);
CUresult CaptureFill(Stream& stream, const CUDA_MEMSET_NODE_PARAMS& fill);
CUresult CaptureHostFunction(Stream& stream, CUhostFn function, void* data);
// For CU_EVENT_RECORD_EXTERNAL and CU_EVENT_WAIT_EXTERNAL.
CUresult CaptureEventRecord(Stream& stream, CUevent event);
CUresult CaptureEventWait(Stream& stream, CUevent event);
CUresult CaptureAlloc(Stream& stream, uint64_t bytes, CUdeviceptr* address);
CUresult CaptureFree(Stream& stream, CUdeviceptr address);
CUresult CaptureMemoryOps(Stream& stream, const CUstreamBatchMemOpParams* operations,
                          uint32_t count, uint32_t flags);

}  // namespace detshare::shim
