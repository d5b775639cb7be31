// Streams and events: makes and destroys them, submits work to them, and waits for them. Any
// thread.
#pragma once

#include "client_shim/objects/current_context.h"
#include "client_shim/objects/objects.h"
#include "client_shim/transport/session.h"
#include "proto/wire/common.h"
#include "proto/wire/ipc.h"

namespace detshare::shim {

// The stream of a synchronous call: the default stream of the calling thread.
inline constexpr CUstream kDefaultStream = nullptr;

// Finds the stream that a handle means:
// - 0 and CU_STREAM_LEGACY are the current context's default stream;
// - 0 inside a PerThreadDefaultScope and CU_STREAM_PER_THREAD are the calling thread's own.
//
// Makes a default stream at its first use. CUDA_ERROR_INVALID_HANDLE: a stale or foreign value.
// CUDA_ERROR_INVALID_CONTEXT: a default stream needs a current context and there is none.
CUresult ResolveStream(CUstream handle, Stream** stream);

// Returns the error of a call that a capturing stream does not allow (graph/capture.h).
CUresult RefuseInCapture(Stream& stream);

// ResolveStream for a call that gives the stream work, or waits for it. It also returns the sticky
// error and the error of a stream that captures. Calls that a graph can hold use
// StreamForWorkOrCapture.
inline CUresult StreamForWork(CUstream handle, Stream** stream) {
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) [[unlikely]]
    return error;
  const CUresult result = ResolveStream(handle, stream);
  if (result == CUDA_SUCCESS && (*stream)->capture.load(std::memory_order_acquire) != 0)
      [[unlikely]] {
    return RefuseInCapture(**stream);
  }
  return result;
}

// Null if there is no such event.
inline Event* FindEvent(CUevent handle) {
  return objects().events.Find(HandleKind::kEvent, reinterpret_cast<uint64_t>(handle));
}

// The context's legacy default stream. Makes it at its first use.
CUresult LegacyStream(Context& context, Stream** stream);

// Make and destroy a stream of the program. A destroyed stream's work goes on.
CUresult CreateStream(Context& context, uint32_t flags, int priority, CUstream* handle);
CUresult DestroyStream(CUstream handle);
// Destroys all streams that were made in the context. Their work goes on.
CUresult DestroyStreamsOf(Context& context);
// Moves a priority into the device's range. A lower number is a higher priority.
int PriorityInRange(uint16_t device, int priority);

// Called after a record of the stream was committed at that ring position.
inline void MarkWork(Stream& stream, uint64_t position) {
  RaiseTo(stream.work, position + 1);
  if (stream.flags == 0 && !stream.legacy) {
    // The default stream is complete when the context's blocking streams are.
    Stream* legacy = stream.context->legacy.load(std::memory_order_acquire);
    if (legacy != nullptr) RaiseTo(legacy->work, position + 1);
  }
}

// Notes that the stream's records up to that ring position are complete.
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

// CUDA_SUCCESS if everything that was submitted to the stream so far is complete, else
// CUDA_ERROR_NOT_READY. Usually a plain load.
CUresult QueryStream(Stream& stream);
// Waits until it is complete. Returns the session's sticky error if there is one.
CUresult SynchronizeStream(Stream& stream);

// Ends all streams and events of context life `context`.
void RetireStreamsAndEvents(ContextId context);

// Makes an event of the program in the context.
CUresult CreateEvent(Context& context, uint32_t flags, CUevent* handle);
// Opens another process's event on the context's device.
CUresult OpenEvent(Context& context, const wire::IpcToken& token, CUevent* handle);
CUresult DestroyEvent(CUevent handle);
// Records the event on the stream, of the event's context or of another one. The caller has checked
// both.
CUresult RecordEvent(Event& event, Stream& stream);
// Lets later work of the stream wait for the event's last recording.
CUresult WaitForEvent(Stream& stream, const Event& event);
// Notes that a launch of a graph records the event and signals this value of this fence.
void RecordEventInGraph(Event& event, FenceIndex fence, uint64_t value);
// Lets later work of `after` wait for the work that `before` has so far. `before` may be of any
// device.
CUresult OrderStreams(Stream& before, Stream& after);
// CUDA_SUCCESS if the last recording is complete or there is none, else CUDA_ERROR_NOT_READY.
CUresult QueryEvent(Event& event);
// Waits until the last recording is complete. Returns the session's sticky error if there is one.
CUresult SynchronizeEvent(Event& event);

}  // namespace detshare::shim
