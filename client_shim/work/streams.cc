#include "client_shim/work/streams.h"

#include <algorithm>
#include <vector>

#include "client_shim/base/futex.h"
#include "client_shim/base/gate.h"
#include "client_shim/base/thread_exit.h"
#include "client_shim/objects/waits.h"
#include "client_shim/transport/read_digest.h"
#include "client_shim/work/context_events.h"
#include "client_shim/work/graph/capture.h"
#include "proto/wire/common.h"
#include "proto/wire/event.h"
#include "proto/wire/ipc.h"
#include "proto/wire/stream.h"

namespace detshare::shim {

struct PerThreadStreams {
  struct Entry {
    ContextId context = 0;
    uint64_t handle = 0;
    Stream* stream = nullptr;
  };
  std::vector<Entry> entries;
};

namespace {

uint64_t NextStreamUniqueId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// Makes a stream of any kind. Each has a valid handle, but programs get only the handles of
// CreateStream.
CUresult MakeStream(Context& context, uint32_t flags, int priority, bool legacy, bool per_thread,
                    Stream** made) {
  const OwnedFence fence = session().fences().Take();
  if (fence.index == kNoFence) return CUDA_ERROR_OUT_OF_MEMORY;
  uint32_t index;
  Stream* stream = objects().streams.Reserve(&index);
  if (stream == nullptr) {
    session().fences().Give(fence.index, fence.value);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  stream->unique_id = NextStreamUniqueId();
  stream->id = index + 1;
  stream->index = index;
  stream->context = &context;
  stream->context_id = context.id.load(std::memory_order_acquire);
  stream->device = context.device;
  stream->flags = flags;
  stream->priority.store(priority, std::memory_order_relaxed);
  stream->priority_changed.store(false, std::memory_order_relaxed);
  stream->has_attributes.store(false, std::memory_order_relaxed);
  stream->hints = {};
  stream->legacy = legacy;
  stream->per_thread = per_thread;
  stream->sync_policy.store(kNoSyncPolicy, std::memory_order_relaxed);
  stream->capture.store(0, std::memory_order_relaxed);
  stream->complete.store(0, std::memory_order_relaxed);
  stream->fence = fence.index;
  stream->signalled = fence.value;
  stream->signalled_position = 0;
  stream->host_reached = stream->host_resume = kNoFence;
  uint64_t position = 0;
  const CUresult result = session().Submit(
      Op::cuStreamCreateWithPriority, stream->device, stream->context_id,
      wire::cuStreamCreateWithPriority{stream->id, stream->context_id,
                                       flags | (legacy ? wire::kStreamLegacyDefault : 0), priority},
      {}, &position);
  // The default stream may have to wait for blocking streams.
  stream->work.store(legacy ? position + 1 : 0, std::memory_order_relaxed);
  if (result != CUDA_SUCCESS) {
    session().fences().Give(fence.index, fence.value);
    objects().streams.Recycle(index);
    return result;
  }
  stream->handle.store(objects().streams.Publish(HandleKind::kStream, index),
                       std::memory_order_release);
  *made = stream;
  return CUDA_SUCCESS;
}

// The same, and lets the stream wait for what the context's new work has to wait for.
CUresult MakeHeldStream(Context& context, uint32_t flags, int priority, bool legacy,
                        bool per_thread, Stream** made) {
  const CUresult result = MakeStream(context, flags, priority, legacy, per_thread, made);
  // Acquire: the gate was made before.
  if (result == CUDA_SUCCESS && context.gated.load(std::memory_order_acquire)) [[unlikely]]
    return HoldNewStream(context, **made);
  return result;
}

// Releases what the stream had, after its handle was retired.
void Dispose(Stream& stream) {
  LeaveCapture(stream);
  stream.handle.store(0, std::memory_order_release);
  FenceAllocator& fences = session().fences();
  fences.Give(stream.fence, stream.signalled);
  fences.Give(stream.host_reached, stream.host_reached_value);
  fences.Give(stream.host_resume, stream.host_resume_value);
  objects().streams.Recycle(stream.index);
}

// Runs at the end of a thread and ends the thread's own streams.
void ReleaseThreadStreams(void*) {
  PerThreadStreams* const streams = thread_state.streams;
  thread_state.streams = nullptr;
  // After a fork or the library's end there is no session to give them back to.
  if (streams == nullptr || g_gate.load(std::memory_order_acquire) != CUDA_SUCCESS) return;
  for (const PerThreadStreams::Entry& entry : streams->entries) {
    // A context that ended has ended its streams, too.
    if (!objects().streams.Retire(entry.handle)) continue;
    session().Submit(Op::cuStreamDestroy_v2, entry.stream->device, entry.stream->context_id,
                     wire::cuStreamDestroy_v2{entry.stream->id, 0});
    Dispose(*entry.stream);
  }
  delete streams;
}

// Gives the fence of the event's last recording to its next user, unless it belongs to a graph.
void GiveEventFence(Event& event) {
  const uint64_t point = event.point.load(std::memory_order_relaxed);
  if (Event::Signalled(point) && !event.foreign_fence)
    session().fences().Give(Event::FenceOf(point), Event::ValueOf(point));
  event.foreign_fence = false;
}

CUresult PerThreadDefault(Context& context, Stream** stream) {
  const ContextId id = context.id.load(std::memory_order_acquire);
  PerThreadStreams*& mine = thread_state.streams;
  if (mine == nullptr) {
    static ThreadExit release(ReleaseThreadStreams);
    release.Arm();
    mine = new PerThreadStreams;
  }
  for (const PerThreadStreams::Entry& entry : mine->entries) {
    if (entry.context == id && entry.stream->context == &context) {
      *stream = entry.stream;
      return CUDA_SUCCESS;
    }
  }
  PerThreadStreams::Entry entry;
  entry.context = id;
  const CUresult result = MakeHeldStream(context, 0, 0, false, true, &entry.stream);
  if (result != CUDA_SUCCESS) return result;
  entry.handle = entry.stream->handle.load(std::memory_order_relaxed);
  mine->entries.push_back(entry);
  *stream = entry.stream;
  return CUDA_SUCCESS;
}

// The position up to which the stream is known to be complete, without a look at its fence.
uint64_t KnownComplete(const Stream& stream) {
  uint64_t known = std::max(stream.complete.load(std::memory_order_acquire),
                            stream.context->complete.load(std::memory_order_acquire));
  if (stream.flags == 0)
    known = std::max(known, stream.context->blocking_complete.load(std::memory_order_acquire));
  return known;
}

struct StreamPoint {
  uint64_t value = 0;     // of the stream's fence
  uint64_t position = 0;  // the ring position + 1 that the value covers
  bool fresh = false;     // the value was asked for just now
};

// Finds a point of the stream behind everything that was submitted to it so far.
CUresult SignalStream(Stream& stream, uint64_t work, StreamPoint* point) {
  const std::lock_guard lock(stream.lock);
  if (stream.signalled_position < work) {
    uint64_t position = 0;
    const CUresult result = session().Submit(
        Op::cuStreamSynchronize, stream.device, stream.context_id,
        wire::cuStreamSynchronize{stream.id, 0, {stream.signalled + 1, stream.fence, 0}}, {},
        &position);
    if (result != CUDA_SUCCESS) return result;
    ++stream.signalled;
    stream.signalled_position = position + 1;
    point->fresh = true;
  }
  point->value = stream.signalled;
  point->position = stream.signalled_position;
  return CUDA_SUCCESS;
}

bool WaitsBlock(const Stream& stream) {
  const uint32_t flags = stream.context->flags.load(std::memory_order_relaxed);
  return (flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC ||
         stream.sync_policy.load(std::memory_order_relaxed) == CU_SYNC_POLICY_BLOCKING_SYNC;
}

// Waits until the daemon has read the signal, and a little longer for the GPU to store it.
bool GiveTime(Stream& stream, const StreamPoint& point) {
  constexpr uint32_t kReadMicroseconds = 5'000;
  // A daemon that spins replies within microseconds. A daemon that shares few cores with its
  // clients may not run for longer.
  const uint32_t signal_us = session().spin_us() != 0 ? 200 : 2'000;
  RingWriter& ring = session().ring();
  const auto reached = [&] { return session().fences().Reached(stream.fence, point.value); };
  if (SpinUntil(reached, session().spin_us())) return true;
  YieldUntil([&] { return ring.head() >= point.position || ring.closed() || reached(); },
             kReadMicroseconds);
  return YieldUntil(reached, signal_us);
}

}  // namespace

CUresult ResolveStream(CUstream handle, Stream** stream) {
  if (reinterpret_cast<uintptr_t>(handle) > 2) {
    *stream = objects().streams.Find(HandleKind::kStream, reinterpret_cast<uint64_t>(handle));
    return *stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  }
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  const bool own =
      handle == CU_STREAM_PER_THREAD || (handle == nullptr && thread_state.per_thread_default);
  return own ? PerThreadDefault(*context, stream) : LegacyStream(*context, stream);
}

CUresult LegacyStream(Context& context, Stream** stream) {
  Stream* found = context.legacy.load(std::memory_order_acquire);
  bool made = false;
  if (found == nullptr) [[unlikely]] {
    const std::lock_guard lock(context.mutex);
    found = context.legacy.load(std::memory_order_acquire);
    if (found == nullptr) {
      // The daemon knows one default stream for a primary context. The default stream of a green
      // context is not ordered with any other.
      const bool green = context.green.load(std::memory_order_acquire) != 0;
      const CUresult result =
          MakeStream(context, green ? CU_STREAM_NON_BLOCKING : 0, 0, !green, green, &found);
      if (result != CUDA_SUCCESS) return result;
      context.legacy.store(found, std::memory_order_release);
      if (!green) NoteDefaultStream(*found);
      made = true;
    }
  }
  if (made && context.gated.load(std::memory_order_acquire)) [[unlikely]] {
    if (const CUresult held = HoldNewStream(context, *found); held != CUDA_SUCCESS) return held;
  }
  *stream = found;
  return CUDA_SUCCESS;
}

CUresult CreateStream(Context& context, uint32_t flags, int priority, CUstream* handle) {
  Stream* stream;
  // The context's own streams are made under its lock, and they wait for nothing.
  const bool own = handle == &context.collector || handle == &context.gate;
  const CUresult result = own ? MakeStream(context, flags, priority, false, false, &stream)
                              : MakeHeldStream(context, flags, priority, false, false, &stream);
  if (result == CUDA_SUCCESS)
    *handle = reinterpret_cast<CUstream>(stream->handle.load(std::memory_order_relaxed));
  return result;
}

CUresult DestroyStream(CUstream handle) {
  Stream* stream = objects().streams.Find(HandleKind::kStream, reinterpret_cast<uint64_t>(handle));
  if (stream == nullptr || stream->legacy || stream->per_thread) return CUDA_ERROR_INVALID_HANDLE;
  if (!objects().streams.Retire(reinterpret_cast<uint64_t>(handle)))
    return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result =
      session().Submit(Op::cuStreamDestroy_v2, stream->device, stream->context_id,
                       wire::cuStreamDestroy_v2{stream->id, 0});
  Dispose(*stream);
  return result;
}

CUresult DestroyStreamsOf(Context& context) {
  CUresult result = CUDA_SUCCESS;
  objects().streams.ForEach([&](Stream& stream) {
    if (stream.context != &context) return;
    if (!objects().streams.Retire(stream.handle.load(std::memory_order_acquire))) return;
    const CUresult destroyed =
        session().Submit(Op::cuStreamDestroy_v2, stream.device, stream.context_id,
                         wire::cuStreamDestroy_v2{stream.id, 0});
    if (result == CUDA_SUCCESS) result = destroyed;
    Dispose(stream);
  });
  return result;
}

int PriorityInRange(uint16_t device_index, int priority) {
  const DeviceInfo& device = session().device(device_index);
  return std::clamp(priority, std::min(device.greatest_priority, device.least_priority),
                    std::max(device.greatest_priority, device.least_priority));
}

CUresult QueryStream(Stream& stream) {
  const uint64_t work = stream.work.load(std::memory_order_acquire);
  if (KnownComplete(stream) < work) {
    StreamPoint point;
    const CUresult result = SignalStream(stream, work, &point);
    if (result != CUDA_SUCCESS) return result;
    // A program that knows by other means that the stream is idle expects this call to confirm it.
    // So the daemon gets a moment to reply to a new question. If the program asks again without new
    // work, the reply is a plain load.
    const bool reached = point.fresh ? GiveTime(stream, point)
                                     : session().fences().Reached(stream.fence, point.value);
    if (!reached) {
      const CUresult error = session().sticky_error();
      return error != CUDA_SUCCESS ? error : CUDA_ERROR_NOT_READY;
    }
    MarkComplete(stream, point.position - 1);
  }
  CollectReads();
  session().DrainOutput();
  return session().sticky_error();
}

CUresult SynchronizeStream(Stream& stream) {
  const uint64_t work = stream.work.load(std::memory_order_acquire);
  CUresult result = CUDA_SUCCESS;
  if (KnownComplete(stream) < work) {
    StreamPoint point;
    result = SignalStream(stream, work, &point);
    if (result != CUDA_SUCCESS) return result;
    if (!SpinForFence(stream.fence, point.value, WaitsBlock(stream))) {
      result = session().Call(Op::cuStreamSynchronize, stream.device, stream.context_id,
                              wire::cuStreamSynchronize{stream.id, 0, {0, kNoFence, 0}});
    }
    if (result == CUDA_SUCCESS) MarkComplete(stream, point.position - 1);
  }
  CollectReads();
  session().DrainOutput();
  const CUresult error = session().sticky_error();
  return error != CUDA_SUCCESS ? error : result;
}

void RetireStreamsAndEvents(ContextId context) {
  objects().streams.ForEach([&](Stream& stream) {
    if (stream.context_id != context) return;
    if (objects().streams.Retire(stream.handle.load(std::memory_order_acquire))) Dispose(stream);
  });
  objects().events.ForEach([&](Event& event) {
    if (event.context_id != context) return;
    const uint64_t handle = event.handle.load(std::memory_order_acquire);
    if (!objects().events.Retire(handle)) return;
    event.handle.store(0, std::memory_order_release);
    GiveEventFence(event);
    objects().events.Recycle(event.index);
  });
}

// ---- events

namespace {

// Makes an event. `submit` asks the daemon for it.
template <typename Submit>
CUresult MakeEvent(Context& context, uint32_t flags, CUevent* handle, Submit submit) {
  uint32_t index;
  Event* event = objects().events.Reserve(&index);
  if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  event->id = index + 1;
  event->index = index;
  event->context = &context;
  event->context_id = context.id.load(std::memory_order_acquire);
  event->device = context.device;
  event->flags = flags;
  event->point.store(0, std::memory_order_relaxed);
  event->capture.store(0, std::memory_order_relaxed);
  event->foreign_fence = false;
  event->asked.store(false, std::memory_order_relaxed);
  event->stream.store(nullptr, std::memory_order_relaxed);
  event->recorded_stream = 0;
  const CUresult result = submit(*event);
  if (result != CUDA_SUCCESS) {
    objects().events.Recycle(index);
    return result;
  }
  const uint64_t value = objects().events.Publish(HandleKind::kEvent, index);
  event->handle.store(value, std::memory_order_release);
  *handle = reinterpret_cast<CUevent>(value);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult CreateEvent(Context& context, uint32_t flags, CUevent* handle) {
  return MakeEvent(context, flags, handle, [flags](const Event& event) {
    return session().Submit(Op::cuEventCreate, event.device, event.context_id,
                            wire::cuEventCreate{event.id, event.context_id, flags, 0});
  });
}

CUresult OpenEvent(Context& context, const wire::IpcToken& token, CUevent* handle) {
  constexpr uint32_t kFlags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  return MakeEvent(context, kFlags, handle, [&token](const Event& event) {
    return session().Call(Op::cuIpcOpenEventHandle, event.device, event.context_id,
                          wire::cuIpcOpenEventHandle{token, event.id, event.context_id});
  });
}

CUresult DestroyEvent(CUevent handle) {
  Event* event = FindEvent(handle);
  if (event == nullptr || !objects().events.Retire(reinterpret_cast<uint64_t>(handle)))
    return CUDA_ERROR_INVALID_HANDLE;
  event->handle.store(0, std::memory_order_release);
  const CUresult result = session().Submit(Op::cuEventDestroy_v2, event->device, event->context_id,
                                           wire::cuEventDestroy_v2{event->id, 0});
  GiveEventFence(*event);
  objects().events.Recycle(event->index);
  return result;
}

void RecordEventInGraph(Event& event, FenceIndex fence, uint64_t value) {
  const std::lock_guard lock(event.lock);
  GiveEventFence(event);
  event.foreign_fence = true;
  event.capture.store(0, std::memory_order_relaxed);
  // The end of this recording says nothing about a stream.
  event.recorded_stream = 0;
  event.stream.store(nullptr, std::memory_order_relaxed);
  event.point.store(Event::Pack(fence, value), std::memory_order_release);
}

namespace {

// Needs the event's lock. Takes a signal for the event's next recording on the stream. Returns
// false if no fence can be spared.
bool LeaseSignal(Event& event, const Stream& stream, uint64_t point, OwnedFence* fence) {
  FenceAllocator& fences = session().fences();
  const bool has = Event::Signalled(point) && !event.foreign_fence;
  // Signals of one stream arrive in order. A signal of another stream could overtake one that has
  // not arrived yet, so it gets another fence.
  if (has && (event.recorded_stream == stream.unique_id ||
              fences.Reached(Event::FenceOf(point), Event::ValueOf(point)))) {
    *fence = {Event::FenceOf(point), Event::ValueOf(point)};
  } else {
    *fence = fences.TakeSpare();
    if (fence->index == kNoFence) return false;
    GiveEventFence(event);
  }
  ++fence->value;
  return true;
}

// Asks the daemon whether the event is complete, after it has carried out what was submitted before.
CUresult AskDaemon(const Event& event) {
  return session().Call(Op::cuEventQuery, event.device, event.context_id,
                        wire::cuEventQuery{event.id, 0});
}

// Returns once the daemon has carried out what was submitted before. After a call with an event
// between processes, another process may record the event or wait for it at once, so the daemon must
// not see that first.
CUresult SettleSharedEvent(const Event& event) {
  const CUresult result = AskDaemon(event);
  return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

}  // namespace

CUresult RecordEvent(Event& event, Stream& stream) {
  if (event.interprocess()) {
    const CUresult result =
        SubmitWork(stream, Op::cuEventRecordWithFlags,
                   wire::cuEventRecordWithFlags{event.id, stream.id, {0, kNoFence, 0}});
    return result != CUDA_SUCCESS ? result : SettleSharedEvent(event);
  }
  const std::lock_guard lock(event.lock);
  const uint64_t point = event.point.load(std::memory_order_relaxed);
  wire::Signal signal{0, kNoFence, 0};
  OwnedFence fence;
  if (event.asked.load(std::memory_order_relaxed) && LeaseSignal(event, stream, point, &fence)) {
    signal = {fence.value, fence.index, 0};
    // Release: a thread that sees the point may poll its fence.
    event.point.store(Event::Pack(fence.index, fence.value), std::memory_order_release);
  } else {
    GiveEventFence(event);
    event.point.store(Event::Pack(Event::kUnsignalled, ++event.unsignalled),
                      std::memory_order_release);
  }
  event.capture.store(0, std::memory_order_relaxed);
  event.recorded_stream = stream.unique_id;
  uint64_t position = 0;
  const CUresult result =
      SubmitWork(stream, Op::cuEventRecordWithFlags,
                 wire::cuEventRecordWithFlags{event.id, stream.id, signal}, {}, &position);
  event.stream.store(&stream, std::memory_order_relaxed);
  event.recorded_position.store(position + 1, std::memory_order_release);
  return result;
}

CUresult WaitForEvent(Stream& stream, const Event& event) {
  const CUresult result =
      SubmitWork(stream, Op::cuStreamWaitEvent, wire::cuStreamWaitEvent{stream.id, event.id});
  return result != CUDA_SUCCESS || !event.interprocess() ? result : SettleSharedEvent(event);
}

CUresult OrderStreams(Stream& before, Stream& after) {
  CUevent handle;
  CUresult result = CreateEvent(*before.context, CU_EVENT_DISABLE_TIMING, &handle);
  if (result != CUDA_SUCCESS) return result;
  Event& event = *FindEvent(handle);
  result = RecordEvent(event, before);
  if (result == CUDA_SUCCESS) {
    result = WaitForEvent(after, event);
  }
  const CUresult destroyed = DestroyEvent(handle);
  return result != CUDA_SUCCESS ? result : destroyed;
}

namespace {

// The recording `point` of the event was found complete, so its stream is complete up to there. (A
// stream that was made later in the same place has only later records.)
void MarkEventComplete(Event& event, uint64_t point) {
  CollectReads();
  Stream* stream = event.stream.load(std::memory_order_acquire);
  if (stream == nullptr || stream->complete.load(std::memory_order_relaxed) >=
                               event.recorded_position.load(std::memory_order_relaxed)) {
    return;
  }
  const std::lock_guard lock(event.lock);
  if (event.point.load(std::memory_order_relaxed) != point) return;  // recorded again
  RaiseTo(event.stream.load(std::memory_order_relaxed)->complete,
          event.recorded_position.load(std::memory_order_relaxed));
}

}  // namespace

namespace {

// Whether the recording `point` is complete, if no fence is signalled for it. Results as of
// QueryEvent.
CUresult QueryUnsignalled(Event& event, uint64_t point) {
  event.asked.store(true, std::memory_order_relaxed);
  {
    const std::lock_guard lock(event.lock);
    // The shim's knowledge of the stream may be enough, unless another stream has taken its place.
    const Stream* stream = event.stream.load(std::memory_order_relaxed);
    if (event.point.load(std::memory_order_relaxed) == point && stream != nullptr &&
        stream->unique_id == event.recorded_stream &&
        stream->complete.load(std::memory_order_acquire) >=
            event.recorded_position.load(std::memory_order_relaxed)) {
      return session().sticky_error();
    }
  }
  const CUresult result = AskDaemon(event);
  if (result == CUDA_SUCCESS) {
    MarkEventComplete(event, point);
    session().DrainOutput();
  }
  return result;
}

}  // namespace

CUresult QueryEvent(Event& event) {
  if (event.interprocess()) {
    const CUresult result = AskDaemon(event);
    CollectReads();
    return result;
  }
  const uint64_t point = event.point.load(std::memory_order_acquire);
  if (point != 0 && !Event::Signalled(point)) return QueryUnsignalled(event, point);
  if (point != 0 && !session().fences().Reached(Event::FenceOf(point), Event::ValueOf(point))) {
    const CUresult error = session().sticky_error();
    return error != CUDA_SUCCESS ? error : CUDA_ERROR_NOT_READY;
  }
  if (point != 0) MarkEventComplete(event, point);
  return session().sticky_error();
}

CUresult SynchronizeEvent(Event& event) {
  if (event.interprocess()) {
    const CUresult result = session().Call(Op::cuEventSynchronize, event.device, event.context_id,
                                           wire::cuEventSynchronize{event.id, 0});
    CollectReads();
    session().DrainOutput();
    return result;
  }
  const uint64_t point = event.point.load(std::memory_order_acquire);
  if (point != 0 && !Event::Signalled(point)) {
    // No fence is signalled for it, so this thread asks the daemon again and again. It asks without
    // a pause for as long as other waits spin.
    const bool blocking = (event.flags & CU_EVENT_BLOCKING_SYNC) != 0;
    const uint64_t spin_end =
        NowMicroseconds() + (blocking ? session().spin_us() : session().wait_spin_us());
    CUresult result = QueryUnsignalled(event, point);
    for (Naps naps(event.device); result == CUDA_ERROR_NOT_READY;) {
      if (NowMicroseconds() >= spin_end) naps.Nap();
      // The event was recorded again. This call waits for the recording at its beginning, or for a
      // later one.
      result = event.point.load(std::memory_order_acquire) == point ? QueryUnsignalled(event, point)
                                                                    : QueryEvent(event);
    }
    // Another thread may have seen the completion, and not have written the text yet.
    session().DrainOutput();
    return result;
  }
  if (point != 0) {
    const FenceIndex fence = Event::FenceOf(point);
    const uint64_t value = Event::ValueOf(point);
    if (!SpinForFence(fence, value, (event.flags & CU_EVENT_BLOCKING_SYNC) != 0)) {
      Naps naps(event.device);
      while (!session().fences().Reached(fence, value)) {
        if (session().closed()) return session().Lost();
        naps.Nap();
      }
    }
    MarkEventComplete(event, point);
    session().DrainOutput();
  }
  return session().sticky_error();
}

}  // namespace detshare::shim
