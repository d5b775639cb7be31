// Kernels and functions. A CUfunction is a CUkernel under another kind. The shim itself holds what
// programs ask about them.
#include "client_shim/code/libraries.h"
#include "client_shim/objects/current_context.h"
#include "proto/driver_api/shim_api.h"
#include "proto/wire/library.h"

namespace detshare::shim::api {
namespace {

CUresult GetAttribute(Kernel& kernel, uint16_t device, CUfunction_attribute attribute, int* value) {
  if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  static_assert(CU_FUNC_ATTRIBUTE_MAX <= wire::kFunctionAttributes);
  KernelInstance* instance;
  if (const CUresult result = InstanceOn(kernel, device, &instance); result != CUDA_SUCCESS)
    return result;
  *value = instance->attributes[attribute].load(std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult GetParameter(Kernel& kernel, size_t index, size_t* offset, size_t* bytes) {
  Context* context;
  if (const CUresult result = CurrentContext(&context); result != CUDA_SUCCESS) return result;
  KernelInstance* instance;
  if (const CUresult result = InstanceOn(kernel, DeviceFor(kernel), &instance);
      result != CUDA_SUCCESS)
    return result;
  if (index >= instance->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = instance->parameters[index].offset;
  if (bytes != nullptr) *bytes = instance->parameters[index].bytes;
  return CUDA_SUCCESS;
}

// A CUkernel may be launched like a function, but these calls do not accept it as one.
Kernel* FindFunctionOnly(CUfunction handle) {
  return code_tables().kernels.Find(HandleKind::kFunction, reinterpret_cast<uint64_t>(handle));
}

bool CacheConfigValid(CUfunc_cache config) {
  return config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL;
}

}  // namespace

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  Kernel* found = FindKernel(kernel);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Context* context;
  if (const CUresult result = CurrentContext(&context); result != CUDA_SUCCESS) return result;
  KernelInstance* instance;
  if (const CUresult result = InstanceOn(*found, context->device, &instance);
      result != CUDA_SUCCESS)
    return result;
  *pFunc = FunctionHandle(*found);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  Kernel* found = FindKernel(kernel);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pLib = reinterpret_cast<CUlibrary>(found->library_handle);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  Kernel* found = FindKernel(kernel);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!session().HasDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  return GetAttribute(*found, static_cast<uint16_t>(dev), attrib, pi);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  Kernel* found = FindKernel(kernel);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!session().HasDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  return SetKernelAttribute(*found, static_cast<uint16_t>(dev), attrib, val);
}

// Preferences of older devices. They have no effect on devices with unified data caches.
CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  if (FindKernel(kernel) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!session().HasDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  return CacheConfigValid(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  Kernel* found = FindKernel(hfunc);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = found->name;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                              size_t* paramSize) {
  Kernel* found = FindKernel(kernel);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return GetParameter(*found, paramIndex, paramOffset, paramSize);
}

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  Kernel* found = FindFunctionOnly(hfunc);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return GetAttribute(*found, DeviceFor(*found), attrib, pi);
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  Kernel* found = FindFunctionOnly(hfunc);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return SetKernelAttribute(*found, DeviceFor(*found), attrib, value);
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  if (FindFunctionOnly(hfunc) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return CacheConfigValid(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  Kernel* found = FindFunctionOnly(hfunc);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *hmod = ModuleHandle(*found->library);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  Kernel* found = FindFunctionOnly(hfunc);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = found->name;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                            size_t* paramSize) {
  Kernel* found = FindFunctionOnly(func);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return GetParameter(*found, paramIndex, paramOffset, paramSize);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  Kernel* found = FindFunctionOnly(function);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // Acquire: as in InstanceOn.
  const bool loaded =
      found->instances[DeviceFor(*found)].load(std::memory_order_acquire) != nullptr;
  *state = loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
  Kernel* found = FindFunctionOnly(function);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  KernelInstance* instance;
  return InstanceOn(*found, DeviceFor(*found), &instance);
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  if (FindFunctionOnly(hfunc) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
                 config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace detshare::shim::api
