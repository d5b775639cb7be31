// The launch interface of CUDA 3. Earlier calls set a launch's parameters one by one, for each
// function.
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "client_shim/code/libraries.h"
#include "client_shim/work/launch.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

constexpr uint32_t kMaxParameterBytes = 32764;  // CUDA's limit since 12.1

struct LaunchState {
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
  uint32_t parameter_bytes = 0;  // cuParamSetSize; 0: all of the kernel
  std::vector<std::byte> parameters = std::vector<std::byte>(kMaxParameterBytes);
};

struct LaunchStates {
  std::mutex mutex;  // guards the rest
  std::map<CUfunction, LaunchState> of_function;
};
LaunchStates& states() {
  static auto* const all = new LaunchStates;
  return *all;
}

// Calls set(state, instance, device) if the function exists.
template <typename Set>
CUresult With(CUfunction function, Set set) {
  Kernel* kernel = FindFunction(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const uint16_t device = DeviceFor(*kernel);
  KernelInstance* instance;
  if (const CUresult result = InstanceOn(*kernel, device, &instance); result != CUDA_SUCCESS)
    return result;
  const std::lock_guard lock(states().mutex);
  return set(states().of_function[function], *instance, device);
}

CUresult SetParameter(CUfunction function, int offset, const void* value, uint32_t bytes) {
  return With(function, [&](LaunchState& state, const KernelInstance&, uint16_t) {
    if (offset < 0 || static_cast<uint32_t>(offset) > kMaxParameterBytes ||
        bytes > kMaxParameterBytes - static_cast<uint32_t>(offset)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(state.parameters.data() + offset, value, bytes);
    return CUDA_SUCCESS;
  });
}

CUresult LaunchWithState(CUfunction function, int width, int height, CUstream stream) {
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  LaunchState state;
  size_t bytes = 0;
  const CUresult found =
      With(function, [&](const LaunchState& set, const KernelInstance& kernel, uint16_t) {
        state = set;
        bytes = set.parameter_bytes != 0 ? set.parameter_bytes : kernel.parameter_bytes;
        return CUDA_SUCCESS;
      });
  if (found != CUDA_SUCCESS) return found;
  LaunchRequest request;
  request.grid[0] = static_cast<uint32_t>(width);
  request.grid[1] = static_cast<uint32_t>(height);
  memcpy(request.block, state.block, sizeof(request.block));
  request.shared_bytes = state.shared_bytes;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, state.parameters.data(),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  return Launch(function, stream, request, nullptr, nullptr, extra);
}

}  // namespace

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  const uint32_t block[] = {static_cast<uint32_t>(x), static_cast<uint32_t>(y),
                            static_cast<uint32_t>(z)};
  return With(hfunc, [&](LaunchState& state, const KernelInstance&, uint16_t device) {
    if (!BlockAllowed(device, block)) return CUDA_ERROR_INVALID_VALUE;
    memcpy(state.block, block, sizeof(block));
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  return With(hfunc, [&](LaunchState& state, const KernelInstance& kernel, uint16_t) {
    const int limit = kernel.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES].load(
        std::memory_order_relaxed);
    if (bytes > static_cast<uint32_t>(limit)) return CUDA_ERROR_INVALID_VALUE;
    state.shared_bytes = bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  return With(hfunc, [&](LaunchState& state, const KernelInstance&, uint16_t) {
    if (numbytes > kMaxParameterBytes) return CUDA_ERROR_INVALID_VALUE;
    state.parameter_bytes = numbytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return SetParameter(hfunc, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return SetParameter(hfunc, offset, &value, sizeof(value));
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  return SetParameter(hfunc, offset, ptr, numbytes);
}

CUresult cuLaunch(CUfunction f) { return LaunchWithState(f, 1, 1, nullptr); }

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return LaunchWithState(f, grid_width, grid_height, nullptr);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  return LaunchWithState(f, grid_width, grid_height, hStream);
}

}  // namespace detshare::shim::api
