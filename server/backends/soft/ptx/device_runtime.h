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

void ExecDeviceRuntime(Context& c, const CallSite& call, uint32_t mask);

}  // namespace detshare::soft::ptx
