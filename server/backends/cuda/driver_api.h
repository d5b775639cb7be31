// The functions of the real libcuda.so.1, found at run time, so that the daemon also starts without
// a driver.
//
// Names and types are those of cuda.h. A version is the one at which the function's type appeared
// (cudaTypedefs.h), so that a newer driver returns the function that the type describes.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace detshare::cuda {

// X(name, version). Every driver from CUDA 12.5 on has all of them.
#define DETSHARE_DRIVER_FUNCTIONS(X)                            \
  X(cuInit, 2000)                                               \
  X(cuDriverGetVersion, 2020)                                   \
  X(cuGetErrorName, 6000)                                       \
  X(cuGetErrorString, 6000)                                     \
  X(cuGetExportTable, 3000)                                     \
  X(cuDeviceGetCount, 2000)                                     \
  X(cuDeviceGet, 2000)                                          \
  X(cuDeviceGetName, 2000)                                      \
  X(cuDeviceGetUuid, 11040)                                     \
  X(cuDeviceTotalMem, 3020)                                     \
  X(cuDeviceGetAttribute, 2000)                                 \
  X(cuDeviceCanAccessPeer, 4000)                                \
  X(cuDeviceGetP2PAttribute, 8000)                              \
  X(cuDeviceGetDevResource, 12040)                              \
  X(cuDevicePrimaryCtxRetain, 7000)                             \
  X(cuDevicePrimaryCtxRelease, 11000)                           \
  X(cuDevicePrimaryCtxSetFlags, 11000)                          \
  X(cuCtxSetCurrent, 4000)                                      \
  X(cuCtxPopCurrent, 4000)                                      \
  X(cuCtxCreate, 3020)                                          \
  X(cuCtxDestroy, 4000)                                         \
  X(cuCtxGetLimit, 3010)                                        \
  X(cuCtxSetLimit, 3010)                                        \
  X(cuCtxGetStreamPriorityRange, 5050)                          \
  X(cuCtxResetPersistingL2Cache, 11000)                         \
  X(cuMemGetInfo, 3020)                                         \
  X(cuMemGetAllocationGranularity, 10020)                       \
  X(cuMemAddressReserve, 10020)                                 \
  X(cuMemAddressFree, 10020)                                    \
  X(cuMemCreate, 10020)                                         \
  X(cuMemRelease, 10020)                                        \
  X(cuMemMap, 10020)                                            \
  X(cuMemUnmap, 10020)                                          \
  X(cuMemSetAccess, 10020)                                      \
  X(cuMemHostRegister, 6050)                                    \
  X(cuMemHostUnregister, 4000)                                  \
  X(cuMemHostGetDevicePointer, 3020)                            \
  X(cuMemcpyAsync, 4000)                                        \
  X(cuMemcpyHtoDAsync, 3020)                                    \
  X(cuMemcpyDtoHAsync, 3020)                                    \
  X(cuMemcpy3DAsync, 3020)                                      \
  X(cuMemcpyPeerAsync, 4000)                                    \
  X(cuMemcpy3DPeerAsync, 4000)                                  \
  X(cuMemsetD8Async, 3020)                                      \
  X(cuMemsetD16Async, 3020)                                     \
  X(cuMemsetD32Async, 3020)                                     \
  X(cuMemsetD2D8Async, 3020)                                    \
  X(cuMemsetD2D16Async, 3020)                                   \
  X(cuMemsetD2D32Async, 3020)                                   \
  X(cuStreamCreateWithPriority, 5050)                           \
  X(cuStreamDestroy, 4000)                                      \
  X(cuStreamQuery, 2000)                                        \
  X(cuStreamSynchronize, 2000)                                  \
  X(cuStreamWaitEvent, 3020)                                    \
  X(cuStreamWriteValue64, 11070)                                \
  X(cuStreamWaitValue64, 11070)                                 \
  X(cuStreamWriteValue32, 11070)                                \
  X(cuStreamBatchMemOp, 11070)                                  \
  X(cuEventCreate, 2000)                                        \
  X(cuEventDestroy, 4000)                                       \
  X(cuEventRecord, 2000)                                        \
  X(cuEventQuery, 2000)                                         \
  X(cuEventSynchronize, 2000)                                   \
  X(cuCtxSynchronize, 2000)                                     \
  X(cuEventElapsedTime, 2000)                                   \
  X(cuLaunchKernelEx, 11060)                                    \
  X(cuLibraryLoadData, 12000)                                   \
  X(cuLibraryUnload, 12000)                                     \
  X(cuLibraryGetKernel, 12000)                                  \
  X(cuLibraryGetModule, 12000)                                  \
  X(cuLibraryGetKernelCount, 12040)                             \
  X(cuLibraryEnumerateKernels, 12040)                           \
  X(cuLibraryGetGlobal, 12000)                                  \
  X(cuKernelGetFunction, 12000)                                 \
  X(cuKernelGetName, 12030)                                     \
  X(cuKernelGetParamInfo, 12040)                                \
  X(cuKernelGetAttribute, 12000)                                \
  X(cuKernelSetAttribute, 12000)                                \
  X(cuFuncSetAttribute, 9000)                                   \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000) \
  X(cuOccupancyAvailableDynamicSMemPerBlock, 10020)             \
  X(cuOccupancyMaxPotentialClusterSize, 11070)                  \
  X(cuOccupancyMaxActiveClusters, 11070)                        \
  X(cuLinkCreate, 6050)                                         \
  X(cuLinkAddData, 6050)                                        \
  X(cuLinkComplete, 5050)                                       \
  X(cuLinkDestroy, 5050)                                        \
  X(cuDevSmResourceSplitByCount, 12040)                         \
  X(cuDevResourceGenerateDesc, 12040)                           \
  X(cuGreenCtxCreate, 12040)                                    \
  X(cuGreenCtxDestroy, 12040)                                   \
  X(cuGreenCtxStreamCreate, 12050)                              \
  X(cuCtxFromGreenCtx, 12040)                                   \
  X(cuGraphCreate, 10000)                                       \
  X(cuGraphDestroy, 10000)                                      \
  X(cuGraphDestroyNode, 10000)                                  \
  X(cuGraphConditionalHandleCreate, 12030)                      \
  X(cuGraphAddNode, 12030)                                      \
  X(cuGraphKernelNodeSetAttribute, 11000)                       \
  X(cuGraphInstantiateWithParams, 12000)                        \
  X(cuGraphExecDestroy, 10000)                                  \
  X(cuGraphExecNodeSetParams, 12020)                            \
  X(cuGraphNodeSetEnabled, 11060)                               \
  X(cuGraphUpload, 11010)                                       \
  X(cuGraphLaunch, 10000)                                       \
  X(cuTensorMapEncodeTiled, 12000)                              \
  X(cuTensorMapEncodeIm2col, 12000)                             \
  X(cuTensorMapReplaceAddress, 12000)                           \
  X(cuDeviceGetTexture1DLinearMaxWidth, 11010)                  \
  X(cuMemAlloc, 3020)                                           \
  X(cuMemFree, 3020)                                            \
  X(cuMemAllocManaged, 6000)                                    \
  X(cuMemPrefetchAsync, 8000)                                   \
  X(cuArray3DCreate, 3020)                                      \
  X(cuArrayDestroy, 2000)                                       \
  X(cuMipmappedArrayCreate, 5000)                               \
  X(cuMipmappedArrayGetLevel, 5000)                             \
  X(cuMipmappedArrayDestroy, 5000)                              \
  X(cuTexObjectCreate, 5000)                                    \
  X(cuTexObjectDestroy, 5000)                                   \
  X(cuSurfObjectCreate, 5000)                                   \
  X(cuSurfObjectDestroy, 5000)

// The same for functions of newer drivers; null if the driver is older.
#define DETSHARE_NEWER_DRIVER_FUNCTIONS(X) X(cuTensorMapEncodeIm2colWide, 12080)

struct DriverApi {
#define DETSHARE_DECLARE(name, version) PFN_##name##_v##version name = nullptr;
  DETSHARE_DRIVER_FUNCTIONS(DETSHARE_DECLARE)
  DETSHARE_NEWER_DRIVER_FUNCTIONS(DETSHARE_DECLARE)
#undef DETSHARE_DECLARE
  std::string path;  // path of the library, for messages
};

// Opens the driver. If `path` is empty, looks in the usual places and then on the library path, and
// skips the shim and the toolkit's stub. Does not call cuInit. The library stays open until the
// process ends. Returns NotFound if there is no driver, and FailedPrecondition if it is too old.
absl::StatusOr<std::unique_ptr<DriverApi>> OpenDriver(const std::string& path);

}  // namespace detshare::cuda
