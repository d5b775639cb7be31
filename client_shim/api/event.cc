// Events.
#include "proto/wire/event.h"

#include "client_shim/objects/current_context.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/event_work.h"
#include "client_shim/work/graph/capture.h"
#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  Context* context;
  const CUresult result = ContextForWork(&context);
  if (result != CUDA_SUCCESS) return result;
  constexpr unsigned int kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if ((Flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & CU_EVENT_INTERPROCESS) != 0 && (Flags & CU_EVENT_DISABLE_TIMING) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  return CreateEvent(*context, Flags, phEvent);
}

CUresult cuEventDestroy_v2(CUevent hEvent) { return DestroyEvent(hEvent); }

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  return api::cuEventRecordWithFlags(hEvent, hStream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return RecordOnStream(hEvent, hStream, flags);
}

CUresult cuEventQuery(CUevent hEvent) {
  Event* event = FindEvent(hEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture.load(std::memory_order_relaxed) != 0) [[unlikely]]
    return RefuseCapturedEvent(*event);
  if (const CUresult refused = RefuseUnsafeCall(); refused != CUDA_SUCCESS) return refused;
  return QueryEvent(*event);
}

CUresult cuEventSynchronize(CUevent hEvent) {
  Event* event = FindEvent(hEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture.load(std::memory_order_relaxed) != 0) [[unlikely]]
    return RefuseCapturedEvent(*event);
  return SynchronizeEvent(*event);
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  Event* start = FindEvent(hStart);
  Event* end = FindEvent(hEnd);
  if (start == nullptr || end == nullptr || start->context_id != end->context_id)
    return CUDA_ERROR_INVALID_HANDLE;
  if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0)
    return CUDA_ERROR_INVALID_HANDLE;
  if (start->point.load(std::memory_order_acquire) == 0 ||
      end->point.load(std::memory_order_acquire) == 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  // The driver looks at the events first.
  if (pMilliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (Event* event : {start, end}) {
    if (event->capture.load(std::memory_order_relaxed) != 0) return RefuseCapturedEvent(*event);
  }
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  wire::cuEventElapsedTime_v2_Reply reply{};
  const CUresult result =
      session().Call(Op::cuEventElapsedTime_v2, start->device, start->context_id,
                     wire::cuEventElapsedTime_v2{start->id, end->id}, &reply);
  if (result == CUDA_SUCCESS) *pMilliseconds = reply.milliseconds;
  return result;
}

}  // namespace detshare::shim::api
