// Green contexts and device resources.
#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "client_shim/context/green_contexts.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/work/context_events.h"
#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"

// The target of a descriptor. CUDA has no call that ends a descriptor.
struct CUdevResourceDesc_st {
  uint16_t device;
  detshare::shim::SmSet sms;
};

namespace detshare::shim::api {
namespace {

struct Descriptors {
  std::mutex mutex;  // guards the rest
  std::vector<std::unique_ptr<CUdevResourceDesc_st>> all;
};
Descriptors& descriptors() {
  static auto* const made = new Descriptors;
  return *made;
}

CUresult Describe(uint16_t device, const SmSet& sms, CUdevResource* resource,
                  CUdevResourceType type) {
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = MakeResource(TopologyOf(device), sms);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  if (!session().HasDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  const auto index = static_cast<uint16_t>(device);
  return Describe(index, WholeDevice(TopologyOf(index)), resource, type);
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource* resource, CUdevResourceType type) {
  const Context* context = FindContext(hCtx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const GreenContext* green = FindGreenContext(
      reinterpret_cast<CUgreenCtx>(context->green.load(std::memory_order_acquire)));
  const SmSet sms = green != nullptr ? green->sms : WholeDevice(TopologyOf(context->device));
  return Describe(context->device, sms, resource, type);
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource,
                                  CUdevResourceType type) {
  const GreenContext* green = FindGreenContext(hCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return Describe(green->context->device, green->sms, resource, type);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups,
                                     const CUdevResource* input, CUdevResource* remaining,
                                     unsigned int useFlags, unsigned int minCount) {
  if (input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  SmSet sms;
  if (!ReadResource(*input, &sms) || !session().HasDevice(static_cast<CUdevice>(sms.device)))
    return CUDA_ERROR_INVALID_VALUE;
  return SplitSms(TopologyOf(static_cast<uint16_t>(sms.device)), sms, useFlags, minCount, result,
                  nbGroups, remaining);
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources,
                                   unsigned int nbResources) {
  if (nbResources == 0 || resources == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SmSet joined;
  std::vector<bool> taken;
  for (unsigned int i = 0; i < nbResources; ++i) {
    if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    SmSet set;
    if (!ReadResource(resources[i], &set) ||
        !session().HasDevice(static_cast<CUdevice>(set.device)))
      return CUDA_ERROR_INVALID_VALUE;
    if (i == 0) {
      joined = set;
      joined.count = 0;
      taken.resize(TopologyOf(static_cast<uint16_t>(set.device)).sm_count);
    }
    const bool together =
        set.device == joined.device && set.split == joined.split && (i == 0 || set.split != 0);
    if (!together || set.first + uint64_t{set.count} > taken.size())
      return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    for (uint32_t sm = set.first; sm < set.first + set.count; ++sm) {
      if (!taken[sm]) ++joined.count;  // an SM that is named twice counts once
      taken[sm] = true;
    }
    joined.first = std::min(joined.first, set.first);
    joined.group = std::min(joined.group, set.group);
  }
  const std::lock_guard lock(descriptors().mutex);
  // Equal descriptors share one entry, so that a program that makes them again and again does not
  // use more and more memory.
  for (const auto& known : descriptors().all) {
    if (known->sms.device == joined.device && known->sms.first == joined.first &&
        known->sms.count == joined.count && known->sms.group == joined.group) {
      *phDesc = known.get();
      return CUDA_SUCCESS;
    }
  }
  descriptors().all.push_back(std::make_unique<CUdevResourceDesc_st>(
      CUdevResourceDesc_st{static_cast<uint16_t>(joined.device), joined}));
  *phDesc = descriptors().all.back().get();
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                          unsigned int flags) {
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  if (!session().HasDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  if (flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  SmSet sms;
  {
    const std::lock_guard lock(descriptors().mutex);
    const auto& all = descriptors().all;
    const auto known = std::find_if(all.begin(), all.end(),
                                    [desc](const auto& made) { return made.get() == desc; });
    if (known == all.end() || (*known)->device != dev) return CUDA_ERROR_INVALID_VALUE;
    sms = (*known)->sms;
  }
  return CreateGreenContext(static_cast<uint16_t>(dev), sms, phCtx);
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) { return DestroyGreenContext(hCtx); }

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  const GreenContext* green = FindGreenContext(hCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *pContext = HandleOf(*green->context);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long* greenCtxId) {
  if (greenCtx != nullptr) {
    const GreenContext* green = FindGreenContext(greenCtx);
    if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *greenCtxId = green->id;
    return CUDA_SUCCESS;
  }
  return api::cuCtxGetId(nullptr, greenCtxId);
}

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags,
                                int priority) {
  const GreenContext* green = FindGreenContext(greenCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  return CreateStream(*green->context, flags, PriorityInRange(green->context->device, priority),
                      phStream);
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  Stream* stream;
  const CUresult result = ResolveStream(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  *phCtx = reinterpret_cast<CUgreenCtx>(stream->context->green.load(std::memory_order_acquire));
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent) {
  const GreenContext* green = FindGreenContext(hCtx);
  return green == nullptr ? CUDA_ERROR_INVALID_CONTEXT
                          : api::cuCtxRecordEvent(HandleOf(*green->context), hEvent);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent) {
  const GreenContext* green = FindGreenContext(hCtx);
  return green == nullptr ? CUDA_ERROR_INVALID_CONTEXT
                          : api::cuCtxWaitEvent(HandleOf(*green->context), hEvent);
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  Context* context = FindContext(hCtx);
  if (context == nullptr || context->id.load(std::memory_order_acquire) == 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  Event* event = FindEvent(hEvent);
  if (event == nullptr || event->context_id != context->id.load(std::memory_order_acquire))
    return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  return RecordContext(*context, *event);
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  Context* context = FindContext(hCtx);
  if (context == nullptr || context->id.load(std::memory_order_acquire) == 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  Event* event = FindEvent(hEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  return HoldContext(*context, hEvent);
}

}  // namespace detshare::shim::api
