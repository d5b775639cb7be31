// Contexts and primary contexts.
#include "proto/wire/context.h"

#include <algorithm>

#include "client_shim/context/contexts.h"
#include "client_shim/memory/pointer_map.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/objects/waits.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/graph/capture.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

// The context of an explicit handle, or the current context for null.
CUresult ContextOf(CUcontext handle, Context** context) {
  if (handle == nullptr) return CurrentContext(context);
  *context = FindContext(handle);
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return (*context)->id.load(std::memory_order_acquire) == 0 ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                             : CUDA_SUCCESS;
}

CUresult Create(CUcontext* handle, unsigned int flags, unsigned int api_version, CUdevice device) {
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  if (!session().HasDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!ContextFlagsValid(flags)) return CUDA_ERROR_INVALID_VALUE;
  return CreateContext(static_cast<uint16_t>(device), flags, api_version, handle);
}

// The least value of a limit: NVIDIA's driver sets no smaller one.
size_t LeastOf(CUlimit limit) {
  switch (limit) {
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      return size_t{512} << 10;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      return size_t{4} << 20;
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
      return 32;
    default:
      return 0;
  }
}

// No device of today has device-side synchronisation or CIG.
CUresult CheckLimit(const Context& context, CUlimit limit) {
  if (static_cast<uint32_t>(limit) >= kLimitCount) return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH || limit == CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED ||
      static_cast<uint32_t>(limit) >= session().device(context.device).limits.size()) {
    return CUDA_ERROR_UNSUPPORTED_LIMIT;
  }
  return CUDA_SUCCESS;
}

}  // namespace

// ---- primary contexts

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  if (!session().HasDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  return RetainPrimary(static_cast<uint16_t>(dev), pctx);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return session().HasDevice(dev) ? ReleasePrimary(static_cast<uint16_t>(dev))
                                  : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  return session().HasDevice(dev) ? SetPrimaryFlags(static_cast<uint16_t>(dev), flags)
                                  : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  if (!session().HasDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = PrimaryFlags(static_cast<uint16_t>(dev));
  *active = PrimaryActive(static_cast<uint16_t>(dev)) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return session().HasDevice(dev) ? ResetPrimary(static_cast<uint16_t>(dev))
                                  : CUDA_ERROR_INVALID_DEVICE;
}

// ---- contexts that the program creates

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return Create(pctx, flags, 3020, dev);
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                        unsigned int flags, CUdevice dev) {
  if (numParams < 0 || (numParams != 0 && paramsArray == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (numParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return Create(pctx, flags, 3020, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
  if (ctxCreateParams != nullptr) {
    if (ctxCreateParams->numExecAffinityParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (ctxCreateParams->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  }
  return Create(pctx, flags, 3020, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  return ctx == nullptr ? CUDA_ERROR_INVALID_VALUE : DestroyContext(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  return ctx == nullptr ? CUDA_ERROR_INVALID_VALUE : PushContext(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) { return PopContext(pctx); }

CUresult cuCtxSetCurrent(CUcontext ctx) { return SetContext(ctx); }

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  *pctx = thread_state.current;
  return CUDA_SUCCESS;
}

CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  CUcontext handle;
  if (context->primary) return RetainPrimary(context->device, pctx);
  handle = HandleOf(*context);
  context->attached.fetch_add(1, std::memory_order_relaxed);
  *pctx = handle;
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) {
  Context* context = FindContext(ctx);
  if (context == nullptr || ctx != thread_state.current) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->primary) return ReleasePrimary(context->device);
  uint32_t attached = context->attached.load(std::memory_order_relaxed);
  while (attached != 0) {
    if (context->attached.compare_exchange_weak(attached, attached - 1, std::memory_order_relaxed))
      return CUDA_SUCCESS;
  }
  return DestroyContext(ctx);
}

// ---- queries

CUresult cuCtxGetDevice(CUdevice* device) { return cuCtxGetDevice_v2(device, nullptr); }

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  // A primary context has its device even while it is not retained.
  const CUcontext handle = ctx == nullptr ? thread_state.current : ctx;
  if (handle == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const Context* context = handle == thread_state.current && thread_state.context != nullptr &&
                                   HandleOf(*thread_state.context) == handle
                               ? thread_state.context
                               : FindContext(handle);
  if (context == nullptr)
    return ctx == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  *flags = context->flags.load(std::memory_order_relaxed);
  // Mapping host memory is always possible. NVIDIA's driver sets the flag for primary contexts, but
  // not for those that programs create.
  if (context->primary || context->green.load(std::memory_order_acquire) != 0)
    *flags |= CU_CTX_MAP_HOST;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ContextFlagsValid(flags)) return CUDA_ERROR_INVALID_VALUE;
  context->flags.store(flags, std::memory_order_relaxed);
  // The flags say it for all memory of the device, which has the attribute until they are set.
  pointers().SetSyncMemopsOfDevice(context->device, (flags & CU_CTX_SYNC_MEMOPS) != 0);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  Context* context;
  const CUresult result = ContextOf(ctx, &context);
  if (result != CUDA_SUCCESS) return result;
  if (context->green.load(std::memory_order_acquire) != 0) {
    return api::cuGreenCtxGetId(
        reinterpret_cast<CUgreenCtx>(context->green.load(std::memory_order_acquire)), ctxId);
  }
  *ctxId = context->id.load(std::memory_order_acquire);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  Context* context;
  const CUresult result = ContextOf(ctx, &context);
  if (result != CUDA_SUCCESS) return result;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  const DeviceInfo& device = session().device(context->device);
  if (leastPriority != nullptr) *leastPriority = device.least_priority;
  if (greatestPriority != nullptr) *greatestPriority = device.greatest_priority;
  return CUDA_SUCCESS;
}

// ---- waiting

CUresult cuCtxSynchronize() { return cuCtxSynchronize_v2(nullptr); }

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  Context* context;
  CUresult result = ContextForWork(&context);
  if (ctx != nullptr && (result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_CONTEXT ||
                         result == CUDA_ERROR_CONTEXT_IS_DESTROYED)) {
    result = ContextOf(ctx, &context);
  }
  if (result == CUDA_SUCCESS) result = RefuseContextInCapture(*context);
  return result != CUDA_SUCCESS ? result : SynchronizeContext(*context);
}

// ---- settings

CUresult cuCtxResetPersistingL2Cache() {
  Context* context;
  const CUresult result = ContextForWork(&context);
  if (result != CUDA_SUCCESS) return result;
  return session().Call(Op::cuCtxResetPersistingL2Cache, context->device,
                        context->id.load(std::memory_order_acquire),
                        wire::cuCtxResetPersistingL2Cache{});
}

// The result of a driver that is not a client of MPS: the context may use all SMs.
CUresult cuCtxGetExecAffinity(CUexecAffinityParam* pExecAffinity, CUexecAffinityType type) {
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  pExecAffinity->type = type;  // also for a type that is unknown, as NVIDIA's driver
  if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  const DeviceInfo& device = session().device(context->device);
  pExecAffinity->param.smCount.val =
      static_cast<unsigned int>(device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  Context* context;
  const CUresult result = ContextForWork(&context);
  if (result != CUDA_SUCCESS) return result;
  if (const CUresult known = CheckLimit(*context, limit); known != CUDA_SUCCESS) return known;
  if (limit == CU_LIMIT_SHMEM_SIZE || limit == CU_LIMIT_CIG_ENABLED)
    return CUDA_ERROR_NOT_PERMITTED;
  wire::cuCtxSetLimit_Reply reply{};
  const CUresult set = session().Call(
      Op::cuCtxSetLimit, context->device, context->id.load(std::memory_order_acquire),
      wire::cuCtxSetLimit{std::max(value, LeastOf(limit)), static_cast<uint32_t>(limit), 0},
      &reply);
  if (set == CUDA_SUCCESS) context->limits[limit].store(reply.value, std::memory_order_relaxed);
  return set;
}

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  if (const CUresult known = CheckLimit(*context, limit); known != CUDA_SUCCESS) return known;
  *pvalue = context->limits[limit].load(std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  *pconfig = static_cast<CUfunc_cache>(context->cache_config.load(std::memory_order_relaxed));
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
    return CUDA_ERROR_INVALID_VALUE;
  context->cache_config.store(config, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  *pConfig = static_cast<CUsharedconfig>(context->shared_config.load(std::memory_order_relaxed));
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  if (config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE ||
      config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The banks of today's devices have one size.
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim::api
