// Events.
#include "proto/wire/event.h"

#include "server/handlers/common.h"

namespace detshare::handlers {
namespace {

constexpr uint32_t kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING

}  // namespace

void cuEventCreate(Session& session, const wire::cuEventCreate& args, Payload, Reply& reply) {
  if (absl::Status known = session.UseContext(args.context); !known.ok()) return reply.Send(known);
  if (absl::Status added = session.AddEvent(args.event, args.context); !added.ok())
    return reply.Send(added);
  const absl::Status status = session.device().coroutine->CreateEvent(
      args.event, args.context, (args.flags & kDisableTiming) == 0);
  if (!status.ok()) session.RemoveEvent(args.event);
  reply.Send(status);
}

void cuEventDestroy_v2(Session& session, const wire::cuEventDestroy_v2& args, Payload,
                       Reply& reply) {
  const absl::Status status = session.device().coroutine->DestroyEvent(args.event);
  if (status.ok()) session.RemoveEvent(args.event);
  reply.Send(status);
}

void cuEventRecordWithFlags(Session& session, const wire::cuEventRecordWithFlags& args, Payload,
                            Reply& reply) {
  Fence* fence = nullptr;
  if (!session.FindFence(args.signal.index, &fence)) {
    return reply.Send(CudaError(kCudaErrorInvalidValue, "no such fence"));
  }
  reply.Send(
      session.device().coroutine->RecordEvent(args.event, args.stream, fence, args.signal.value));
}

void cuEventQuery(Session& session, const wire::cuEventQuery& args, Payload, Reply& reply) {
  reply.Send(session.device().coroutine->QueryEvent(args.event));
}

void cuEventElapsedTime_v2(Session& session, const wire::cuEventElapsedTime_v2& args, Payload,
                           Reply& reply) {
  const absl::StatusOr<float> elapsed =
      session.device().coroutine->ElapsedMilliseconds(args.start, args.end);
  if (!elapsed.ok()) return reply.Send(elapsed.status());
  reply.Send(wire::cuEventElapsedTime_v2_Answer{*elapsed, 0});
}

}  // namespace detshare::handlers
