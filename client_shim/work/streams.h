// Streams and events as the shim holds them, and the ways to wait for them.
#pragma once

#include "client_shim/objects/current_context.h"
#include "client_shim/objects/objects.h"
#include "client_shim/transport/session.h"
#include "proto/wire/common.h"
#include "proto/wire/ipc.h"

namespace detshare::shim {

// The stream that a handle means: 0 and CU_STREAM_LEGACY are the current context's default stream
// (0 the thread's own inside a PerThreadDefaultScope), CU_STREAM_PER_THREAD is the thread's own;
// made when first used. For stale and foreign values CUDA_ERROR_INVALID_HANDLE;
// CUDA_ERROR_INVALID_CONTEXT where a default stream needs a current context.
CUresult ResolveStream(CUstream handle, Stream** stream);

// The error of a call that a capturing stream does not allow (graph/capture.h).
CUresult RefuseInCapture(Stream& stream);

// The same for a call that gives the stream work, or waits for it: the sticky error, too, and that
// of a stream that captures. Calls that a graph can hold use StreamForWorkOrCapture.
inline CUresult StreamForWork(CUstream handle, Stream** stream) {
  if (thread_state.in_host_function) [[unlikely]]
    return CUDA_ERROR_NOT_PERMITTED;
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) [[unlikely]]
    return error;
  const CUresult result = ResolveStream(handle, stream);
  if (result == CUDA_SUCCESS && (*stream)->capture.load(std::memory_order_acquire) != 0)
      [[unlikely]] {
    return RefuseInCapture(**stream);
  }
  return result;
}

inline Event* FindEvent(CUevent handle) {
  return objects().events.Find(HandleKind::kEvent, reinterpret_cast<uint64_t>(handle));
}

// The context's legacy default stream, made when first used.
CUresult LegacyStream(Context& context, Stream** stream);

CUresult CreateStream(Context& context, uint32_t flags, int priority, CUstream* handle);
CUresult DestroyStream(CUstream handle);
// All that were made in the context; their work goes on.
CUresult DestroyStreamsOf(Context& context);
// A lower number is a higher priority; what lies outside the device's range is moved to its end.
int PriorityInRange(uint16_t device, int priority);

// To be called after a record of the stream was committed at that ring position.
inline void MarkWork(Stream& stream, uint64_t position) {
  RaiseTo(stream.work, position + 1);
  if (stream.flags == 0 && !stream.legacy) {
    // The default stream is complete when the context's blocking streams are.
    Stream* legacy = stream.context->legacy.load(std::memory_order_acquire);
    if (legacy != nullptr) RaiseTo(legacy->work, position + 1);
  }
}

// It has been seen that the stream's records up to that ring position are complete.
inline void MarkComplete(Stream& stream, uint64_t position) {
  RaiseTo(stream.complete, position + 1);
  if (stream.legacy) RaiseTo(stream.context->blocking_complete, position + 1);
}

// Submits a record of the stream and marks it. `*where` is its ring position.
template <typename Args>
CUresult SubmitWork(Stream& stream, Op op, const Args& args, ConstBuffer payload = {},
                    uint64_t* where = nullptr) {
  uint64_t position = 0;
  const CUresult result =
      session().Submit(op, stream.device, stream.context_id, args, payload, &position);
  if (result == CUDA_SUCCESS) [[likely]] {
    MarkWork(stream, position);
    if (where != nullptr) *where = position;
  }
  return result;
}

// Whether everything that was submitted to the stream so far is complete. Usually a plain load.
CUresult QueryStream(Stream& stream);
// Waits for it. The session's sticky error when there is one.
CUresult SynchronizeStream(Stream& stream);

// Everything of context life `context` is over.
void RetireStreamsAndEvents(ContextId context);

// Events. `stream` belongs to the event's context or not: the caller has checked.
CUresult CreateEvent(Context& context, uint32_t flags, CUevent* handle);
// Another process's event, on the context's device.
CUresult OpenEvent(Context& context, const wire::IpcToken& token, CUevent* handle);
CUresult DestroyEvent(CUevent handle);
CUresult RecordEvent(Event& event, Stream& stream);
// The event is recorded by a launch of a graph, which has given it this fence and value.
void RecordEventInGraph(Event& event, FenceIndex fence, uint64_t value);
// What follows on `after` waits for what `before`, of any device, has been given so far.
CUresult OrderStreams(Stream& before, Stream& after);
// Whether the last recording is complete: CUDA_SUCCESS (also when there is none) or
// CUDA_ERROR_NOT_READY.
CUresult QueryEvent(Event& event);
CUresult SynchronizeEvent(Event& event);

}  // namespace detshare::shim
