// Streams.
#include "proto/wire/stream.h"

#include "client_shim/objects/current_context.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/event_work.h"
#include "client_shim/work/graph/capture.h"
#include "client_shim/work/launch_hints.h"
#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

// Holds for later launches.
void SetPriority(Stream& stream, int priority) {
  const int before =
      stream.priority.exchange(PriorityInRange(stream.device, priority), std::memory_order_relaxed);
  if (before == priority) return;
  stream.priority_changed.store(true, std::memory_order_relaxed);
  stream.has_attributes.store(true, std::memory_order_release);
}

void SetHints(Stream& stream, const wire::LaunchHints& hints) {
  const std::lock_guard lock(stream.lock);
  stream.hints = hints;
  stream.has_attributes.store(true, std::memory_order_release);
}

wire::LaunchHints HintsOf(Stream& stream) {
  const std::lock_guard lock(stream.lock);
  return stream.hints;
}

bool IsHintOfStreams(CUstreamAttrID attribute) {
  return attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
         attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
         attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN ||
         attribute == CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING;
}

}  // namespace

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return api::cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  Context* context;
  const CUresult result = ContextForWork(&context);
  if (result != CUDA_SUCCESS) return result;
  if ((flags & ~static_cast<unsigned int>(CU_STREAM_NON_BLOCKING)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  return CreateStream(*context, flags, PriorityInRange(context->device, priority), phStream);
}

CUresult cuStreamDestroy_v2(CUstream hStream) { return DestroyStream(hStream); }

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  Stream* stream;
  const CUresult result = ResolveStream(hStream, &stream);
  if (result == CUDA_SUCCESS) *priority = stream->priority.load(std::memory_order_relaxed);
  return result;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  Stream* stream;
  const CUresult result = ResolveStream(hStream, &stream);
  if (result == CUDA_SUCCESS) *device = stream->device;
  return result;
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  Stream* stream;
  const CUresult result = ResolveStream(hStream, &stream);
  if (result == CUDA_SUCCESS) *flags = stream->flags;
  return result;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  Stream* stream;
  const CUresult result = ResolveStream(hStream, &stream);
  if (result == CUDA_SUCCESS) *streamId = stream->unique_id;
  return result;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  Stream* stream;
  const CUresult result = ResolveStream(hStream, &stream);
  if (result == CUDA_SUCCESS) *pctx = HandleOf(*stream->context);
  return result;
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  const CUresult result = api::cuStreamGetCtx(hStream, pCtx);
  if (result == CUDA_SUCCESS && pGreenCtx != nullptr) *pGreenCtx = nullptr;
  return result;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  return WaitOnStream(hStream, hEvent, Flags);
}

CUresult cuStreamQuery(CUstream hStream) {
  Stream* stream;
  const CUresult result = StreamForWork(hStream, &stream);
  return result != CUDA_SUCCESS ? result : QueryStream(*stream);
}

CUresult cuStreamSynchronize(CUstream hStream) {
  Stream* stream;
  CUresult result = StreamForWork(hStream, &stream);
  if (result == CUDA_SUCCESS) result = RefuseUnsafeCall();
  return result != CUDA_SUCCESS ? result : SynchronizeStream(*stream);
}

// ---- attributes

CUresult cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream) {
  Stream *to, *from;
  CUresult result = ResolveStream(dstStream, &to);
  if (result != CUDA_SUCCESS) return result;
  result = ResolveStream(srcStream, &from);
  if (result != CUDA_SUCCESS) return result;
  to->sync_policy.store(from->sync_policy.load(std::memory_order_relaxed),
                        std::memory_order_relaxed);
  SetPriority(*to, from->priority.load(std::memory_order_relaxed));
  SetHints(*to, HintsOf(*from));
  return CUDA_SUCCESS;
}

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue* value) {
  Stream* stream;
  const CUresult result = ResolveStream(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  switch (attr) {
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      value->syncPolicy =
          static_cast<CUsynchronizationPolicy>(stream->sync_policy.load(std::memory_order_relaxed));
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      value->priority = stream->priority.load(std::memory_order_relaxed);
      return CUDA_SUCCESS;
    default:
      if (!IsHintOfStreams(attr)) return CUDA_ERROR_INVALID_VALUE;
      GetHint(HintsOf(*stream), attr, value);
      return CUDA_SUCCESS;
  }
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr,
                              const CUstreamAttrValue* param) {
  Stream* stream;
  const CUresult result = ResolveStream(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (param == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attr) {
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      if (param->syncPolicy < CU_SYNC_POLICY_AUTO ||
          param->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      stream->sync_policy.store(param->syncPolicy, std::memory_order_relaxed);
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      SetPriority(*stream, param->priority);
      return CUDA_SUCCESS;
    default: {
      if (!IsHintOfStreams(attr)) return CUDA_ERROR_INVALID_VALUE;
      wire::LaunchHints hints = HintsOf(*stream);
      const CUresult added = AddHint(stream->device, attr, *param, &hints);
      if (added == CUDA_SUCCESS) SetHints(*stream, hints);
      return added;
    }
  }
}

}  // namespace detshare::shim::api
