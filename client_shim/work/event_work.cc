#include "client_shim/work/event_work.h"

#include "client_shim/work/graph/capture.h"
#include "client_shim/work/graph/capture_work.h"
#include "client_shim/work/streams.h"
#include "proto/wire/event.h"
#include "proto/wire/stream.h"

namespace detshare::shim {

CUresult RecordOnStream(CUevent handle, CUstream stream_handle, unsigned int flags) {
  Stream* stream;
  const CUresult result = StreamForWorkOrCapture(stream_handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  Event* event = FindEvent(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (Capturing(*stream)) [[unlikely]] {
    if (flags == CU_EVENT_RECORD_EXTERNAL) return CaptureEventRecord(*stream, handle);
    return flags != CU_EVENT_RECORD_DEFAULT ? CUDA_ERROR_INVALID_VALUE
                                            : RecordInCapture(*event, *stream);
  }
  // CU_EVENT_RECORD_EXTERNAL has a meaning only in a capture.
  if (flags == CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_ILLEGAL_STATE;
  if (flags != CU_EVENT_RECORD_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  if (event->context_id != stream->context_id) return CUDA_ERROR_INVALID_HANDLE;
  return RecordEvent(*event, *stream);
}

CUresult WaitOnStream(CUstream stream_handle, CUevent handle, unsigned int flags) {
  Stream* stream;
  const CUresult result = StreamForWorkOrCapture(stream_handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  Event* event = FindEvent(handle);
  const bool capturing = Capturing(*stream);
  if (event == nullptr) {
    // As with driver 580, a lost capture comes before a wrong event.
    CaptureInfo capture;
    if (capturing && QueryCapture(*stream, &capture) == CUDA_SUCCESS &&
        capture.status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (capturing && flags == CU_EVENT_WAIT_EXTERNAL) return CaptureEventWait(*stream, handle);
  if (event->capture.load(std::memory_order_acquire) != 0 ||
      (capturing && (event->point.load(std::memory_order_relaxed) != 0 || event->interprocess()))) {
    return flags != CU_EVENT_WAIT_DEFAULT ? CUDA_ERROR_INVALID_VALUE
                                          : WaitInCapture(*stream, *event);
  }
  // CU_EVENT_WAIT_EXTERNAL has a meaning only in a capture.
  if (flags == CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_ILLEGAL_STATE;
  if (flags != CU_EVENT_WAIT_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  // The event was never recorded, so there is nothing to wait for. For an event between processes
  // only the daemon knows whether it was.
  if (event->point.load(std::memory_order_acquire) == 0 && !event->interprocess())
    return CUDA_SUCCESS;
  return WaitForEvent(*stream, *event);
}

}  // namespace detshare::shim
