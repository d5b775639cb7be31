// Launches and host functions.
#include "client_shim/work/launch.h"

#include "client_shim/objects/current_context.h"
#include "client_shim/work/graph/capture.h"
#include "client_shim/work/graph/capture_work.h"
#include "client_shim/work/host_functions.h"
#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"
#include "proto/wire/launch.h"

namespace detshare::shim::api {

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void** kernelParams, void** extra) {
  LaunchRequest request;
  request.grid[0] = gridDimX;
  request.grid[1] = gridDimY;
  request.grid[2] = gridDimZ;
  request.block[0] = blockDimX;
  request.block[1] = blockDimY;
  request.block[2] = blockDimZ;
  request.shared_bytes = sharedMemBytes;
  return Launch(f, hStream, request, nullptr, kernelParams, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LaunchRequest request;
  LaunchEvents events;
  request.grid[0] = config->gridDimX;
  request.grid[1] = config->gridDimY;
  request.grid[2] = config->gridDimZ;
  request.block[0] = config->blockDimX;
  request.block[1] = config->blockDimY;
  request.block[2] = config->blockDimZ;
  request.shared_bytes = config->sharedMemBytes;
  CUresult result = ParseAttributes(*config, &request, &events);
  const bool parsed = result == CUDA_SUCCESS;
  if (parsed) result = CheckPreferredCluster(request, events);
  if (result == CUDA_SUCCESS) [[likely]]
    return Launch(f, config->hStream, request, &events, kernelParams, extra);
  // Wrong blocks and empty grids come before wrong attributes, and grids that are too large after
  // them, but before a preferred cluster that does not fit.
  Context* context;
  if (CurrentContext(&context) != CUDA_SUCCESS) return result;
  const bool possible = BlockAllowed(context->device, request.block) && request.grid[0] != 0 &&
                        request.grid[1] != 0 && request.grid[2] != 0 &&
                        (!parsed || GridAllowed(context->device, request));
  return possible ? result : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  LaunchRequest request;
  request.grid[0] = gridDimX;
  request.grid[1] = gridDimY;
  request.grid[2] = gridDimZ;
  request.block[0] = blockDimX;
  request.block[1] = blockDimY;
  request.block[2] = blockDimZ;
  request.shared_bytes = sharedMemBytes;
  request.flags = wire::kLaunchCooperative;
  return Launch(f, hStream, request, nullptr, kernelParams, nullptr);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  const CUresult result = StreamForWork(hStream, &stream);
  return result != CUDA_SUCCESS
             ? result
             : EnqueueHostFunction(*stream, {nullptr, callback, hStream, userData});
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  const CUresult result = StreamForWorkOrCapture(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (Capturing(*stream)) return CaptureHostFunction(*stream, fn, userData);
  return EnqueueHostFunction(*stream, {fn, nullptr, hStream, userData});
}

}  // namespace detshare::shim::api
