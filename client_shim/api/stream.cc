// Streams.
#include "proto/wire/stream.h"

#include <algorithm>
#include <cstring>

#include "client_shim/contexts.h"
#include "client_shim/graph/capture.h"
#include "client_shim/graph/capture_work.h"
#include "client_shim/session.h"
#include "client_shim/streams.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

// A lower number is a higher priority; what lies outside the device's range is moved to its end.
int InRange(uint16_t device_index, int priority) {
  const DeviceInfo& device = session().device(device_index);
  return std::clamp(priority, std::min(device.greatest_priority, device.least_priority),
                    std::max(device.greatest_priority, device.least_priority));
}

// Holds for the launches that follow.
void SetPriority(Stream& stream, int priority) {
  const int before =
      stream.priority.exchange(InRange(stream.device, priority), std::memory_order_relaxed);
  if (before != priority) stream.priority_changed.store(true, std::memory_order_relaxed);
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
  return CreateStream(*context, flags, InRange(context->device, priority), phStream);
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
  Stream* stream;
  const CUresult result = StreamForWorkOrCapture(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  Event* event = FindEvent(hEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool capturing = Capturing(*stream);
  if (capturing && Flags == CU_EVENT_WAIT_EXTERNAL) return CaptureEventWait(*stream, hEvent);
  if (event->capture.load(std::memory_order_acquire) != 0 ||
      (capturing && event->point.load(std::memory_order_relaxed) != 0)) {
    return Flags != CU_EVENT_WAIT_DEFAULT ? CUDA_ERROR_INVALID_VALUE
                                          : WaitInCapture(*stream, *event);
  }
  // CU_EVENT_WAIT_EXTERNAL only means something in a capture.
  if (Flags == CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_ILLEGAL_STATE;
  if (Flags != CU_EVENT_WAIT_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  if (event->point.load(std::memory_order_acquire) == 0)
    return CUDA_SUCCESS;  // never recorded: nothing to wait for
  if (event->device != stream->device) {
    // Devices have queues of their own: the wait between them is made here.
    return SynchronizeEvent(*event);
  }
  return SubmitWork(*stream, Op::cuStreamWaitEvent, wire::cuStreamWaitEvent{stream->id, event->id});
}

CUresult cuStreamQuery(CUstream hStream) {
  Stream* stream;
  const CUresult result = StreamForWork(hStream, &stream);
  return result != CUDA_SUCCESS ? result : QueryStream(*stream);
}

CUresult cuStreamSynchronize(CUstream hStream) {
  Stream* stream;
  const CUresult result = StreamForWork(hStream, &stream);
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
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      memset(&value->accessPolicyWindow, 0, sizeof(value->accessPolicyWindow));
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      value->memSyncDomainMap.default_ = 0;
      value->memSyncDomainMap.remote = 1;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      value->memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
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
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return CUDA_SUCCESS;  // hints
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace detshare::shim::api
