// Events.
#include "proto/wire/event.h"

#include <memory>
#include <utility>

#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/shared_event.h"
#include "policy/status_macros.h"
#include "server/session/context_table.h"
#include "server/session/handlers/common.h"

namespace detshare::handlers {
namespace {

constexpr uint32_t kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
constexpr uint32_t kInterprocess = 4;   // CU_EVENT_INTERPROCESS

// ---- interprocess events

// A session with this many waiting tasks gets no further recording. Each incomplete recording is
// one waiting task.
constexpr size_t kMaxRecordings = 1 << 16;

// Reports that a recording is reached when it is destroyed, even if the session's work is lost.
class OwnRecording {
 public:
  // `event` has the recording.
  OwnRecording(std::shared_ptr<SharedEvent> event, std::shared_ptr<SharedRecording> recording)
      : event_(std::move(event)), recording_(std::move(recording)) {}
  OwnRecording(OwnRecording&&) = default;
  ~OwnRecording() {
    if (recording_ != nullptr) recording_->Reach();
  }

 private:
  std::shared_ptr<SharedEvent> event_;
  std::shared_ptr<SharedRecording> recording_;
};

Task<void> AwaitRecording(Session& session, OwnRecording, FencePoint point) {
  if (!point.reached()) (void)co_await session.executor().Reached(point.fence, point.value);
}

absl::Status RecordShared(Session& session, EventId id, std::shared_ptr<SharedEvent> event,
                          StreamId stream) {
  if (session.contexts().DeviceOfEvent(id) != &session.device())
    return CudaError(kCudaErrorInvalidHandle, "an event of another device");
  if (session.executor().waiting() >= kMaxRecordings)
    return CudaError(kCudaErrorOutOfMemory, "too many recordings of interprocess events");
  GpuCoroutine& coroutine = *session.device().coroutine;
  DETSHARE_ASSIGN_OR_RETURN(std::shared_ptr<SharedRecording> recorded,
                            coroutine.RecordShared(*event, stream));
  OwnRecording recording(std::move(event), std::move(recorded));
  DETSHARE_ASSIGN_OR_RETURN(const FencePoint point, coroutine.Point(stream));
  session.executor().Spawn(AwaitRecording(session, std::move(recording), point));
  return absl::OkStatus();
}

Task<void> ReplyWhenReached(Session& session, std::shared_ptr<SharedEvent> event, Reply reply) {
  const absl::StatusOr<bool> complete = event->Complete();
  if (!complete.ok()) {
    reply.Send(complete.status());
    co_return;
  }
  if (!*complete) {
    const std::shared_ptr<SharedRecording> last = event->last();
    (void)co_await session.executor().ReachedByOthers(&last->reached(), 1);
  }
  reply.Send(absl::OkStatus());
}

}  // namespace

void cuEventCreate(Session& session, const wire::cuEventCreate& args, Payload, Reply& reply) {
  if (absl::Status known = session.UseContext(args.context); !known.ok()) return reply.Send(known);
  if (absl::Status added = session.contexts().AddEvent(args.event, args.context); !added.ok())
    return reply.Send(added);
  if ((args.flags & kInterprocess) != 0) {
    absl::StatusOr<std::shared_ptr<SharedEvent>> event =
        SharedEvent::Create(*session.device().device);
    if (event.ok()) {
      session.contexts().ShareEvent(args.event, *std::move(event));
    } else {
      session.contexts().RemoveEvent(args.event);
    }
    return reply.Send(event.status());
  }
  const absl::Status status = session.device().coroutine->CreateEvent(
      args.event, args.context, (args.flags & kDisableTiming) == 0);
  if (!status.ok()) session.contexts().RemoveEvent(args.event);
  reply.Send(status);
}

void cuEventDestroy_v2(Session& session, const wire::cuEventDestroy_v2& args, Payload,
                       Reply& reply) {
  if (session.contexts().FindSharedEvent(args.event) != nullptr) {
    session.contexts().RemoveEvent(args.event);
    return reply.Send(absl::OkStatus());
  }
  const absl::Status status = session.device().coroutine->DestroyEvent(args.event);
  if (status.ok()) session.contexts().RemoveEvent(args.event);
  reply.Send(status);
}

void cuEventRecordWithFlags(Session& session, const wire::cuEventRecordWithFlags& args, Payload,
                            Reply& reply) {
  if (std::shared_ptr<SharedEvent> shared = session.contexts().FindSharedEvent(args.event))
    return reply.Send(RecordShared(session, args.event, std::move(shared), args.stream));
  Fence* fence = nullptr;
  if (!session.FindFence(args.signal.index, &fence)) {
    return reply.Send(CudaError(kCudaErrorInvalidValue, "no such fence"));
  }
  reply.Send(
      session.device().coroutine->RecordEvent(args.event, args.stream, fence, args.signal.value));
}

void cuEventQuery(Session& session, const wire::cuEventQuery& args, Payload, Reply& reply) {
  if (const std::shared_ptr<SharedEvent> shared = session.contexts().FindSharedEvent(args.event)) {
    const absl::StatusOr<bool> complete = shared->Complete();
    if (!complete.ok()) return reply.Send(complete.status());
    return reply.Send(*complete
                          ? absl::OkStatus()
                          : CudaError(kCudaErrorNotReady, "the last recording is not complete"));
  }
  reply.Send(session.device().coroutine->QueryEvent(args.event));
}

void cuEventSynchronize(Session& session, const wire::cuEventSynchronize& args, Payload,
                        Reply& reply) {
  std::shared_ptr<SharedEvent> event = session.contexts().FindSharedEvent(args.event);
  if (event == nullptr)
    return reply.Send(CudaError(kCudaErrorInvalidHandle, "not an interprocess event"));
  session.executor().Spawn(ReplyWhenReached(session, std::move(event), std::move(reply)));
}

void cuEventElapsedTime_v2(Session& session, const wire::cuEventElapsedTime_v2& args, Payload,
                           Reply& reply) {
  const absl::StatusOr<float> elapsed =
      session.device().coroutine->ElapsedMilliseconds(args.start, args.end);
  if (!elapsed.ok()) return reply.Send(elapsed.status());
  reply.Send(wire::cuEventElapsedTime_v2_Reply{*elapsed, 0});
}

}  // namespace detshare::handlers
