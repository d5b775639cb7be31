// The device runtime (CUDA Dynamic Parallelism 2, cuda_device_runtime_api.h), with which kernels
// launch kernels.
//
// Kernels run after their parent, in the order of their launches, each with its descendants before
// the next one. So streams and events of the device need nothing to keep their promises.
#pragma once

#include <string_view>

#include "server/backends/soft/ptx/unit.h"

namespace detshare::soft::ptx {

// Returns the builtin for a function of the device runtime; kNone for other names. Functions that the
// software GPU does not have return cudaErrorNotSupported, or a null pointer.
Builtin DeviceRuntimeBuiltin(std::string_view name);

// Whether the builtin is a kernel's launch, or a copy or fill, which are kernels here as they are in
// NVIDIA's device runtime.
bool LaunchesKernel(Builtin builtin);
// Whether the builtin launches the kernel of kTransferKernel. A module that calls it contains that
// kernel.
bool IsTransfer(Builtin builtin);
extern const std::string_view kTransferKernel;  // a PTX text

void ExecDeviceRuntime(Context& c, const CallSite& call, uint32_t mask);

}  // namespace detshare::soft::ptx
