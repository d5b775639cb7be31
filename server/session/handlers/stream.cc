// Streams and host functions.
#include "proto/wire/stream.h"

#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/shared_event.h"
#include "server/session/context_table.h"
#include "server/session/handlers/common.h"

namespace detshare::handlers {
namespace {

constexpr uint32_t kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

Task<void> ReplyWhenReached(Session& session, const Fence* fence, uint64_t value, Reply reply) {
  // The wait fails when the session's work is lost. The reply then carries the session's error.
  (void)co_await session.executor().Reached(fence, value);
  reply.Send(absl::OkStatus());
}

Task<void> ReplyAtPoint(Session& session, FencePoint point, Reply reply) {
  if (!point.reached()) (void)co_await session.executor().Reached(point.fence, point.value);
  reply.Send(absl::OkStatus());
}

}  // namespace

void cuStreamCreateWithPriority(Session& session, const wire::cuStreamCreateWithPriority& args,
                                Payload, Reply& reply) {
  if ((args.flags & ~(kNonBlocking | wire::kStreamLegacyDefault)) != 0) {
    return reply.Send(CudaError(kCudaErrorInvalidValue, "unknown stream flags"));
  }
  if (absl::Status known = session.UseContext(args.context); !known.ok()) return reply.Send(known);
  if (absl::Status added = session.contexts().AddStream(args.stream, args.context); !added.ok())
    return reply.Send(added);
  StreamOptions options;
  options.non_blocking = (args.flags & kNonBlocking) != 0;
  options.legacy_default = (args.flags & wire::kStreamLegacyDefault) != 0;
  options.priority = args.priority;
  const absl::Status status =
      session.device().coroutine->CreateStream(args.stream, args.context, options);
  if (!status.ok()) session.contexts().RemoveStream(args.stream);
  reply.Send(status);
}

void cuStreamDestroy_v2(Session& session, const wire::cuStreamDestroy_v2& args, Payload,
                        Reply& reply) {
  const absl::Status status = session.device().coroutine->DestroyStream(args.stream);
  if (status.ok()) session.contexts().RemoveStream(args.stream);
  reply.Send(status);
}

void cuStreamSynchronize(Session& session, const wire::cuStreamSynchronize& args, Payload,
                         Reply& reply) {
  if (absl::Status status = SignalStream(session, args.stream, args.signal); !status.ok())
    return reply.Send(status);
  if (!reply.wanted()) return reply.Send(absl::OkStatus());
  Fence* fence = nullptr;
  session.FindFence(args.signal.index, &fence);
  if (fence != nullptr) {
    session.executor().Spawn(ReplyWhenReached(session, fence, args.signal.value, std::move(reply)));
    return;
  }
  const absl::StatusOr<FencePoint> point = session.device().coroutine->Point(args.stream);
  if (!point.ok()) return reply.Send(point.status());
  session.executor().Spawn(ReplyAtPoint(session, *point, std::move(reply)));
}

void cuStreamWaitEvent(Session& session, const wire::cuStreamWaitEvent& args, Payload,
                       Reply& reply) {
  if (const std::shared_ptr<SharedEvent> shared = session.contexts().FindSharedEvent(args.event))
    return reply.Send(session.device().coroutine->WaitShared(args.stream, *shared));
  const SessionDevice* const owner = session.contexts().DeviceOfEvent(args.event);
  if (owner == nullptr) return reply.Send(CudaError(kCudaErrorInvalidHandle, "no such event"));
  reply.Send(session.device().coroutine->WaitEventOf(*owner->coroutine, args.stream, args.event));
}

void cuLaunchHostFunc(Session& session, const wire::cuLaunchHostFunc& args, Payload, Reply& reply) {
  Fence* reached = nullptr;
  Fence* resume = nullptr;
  if (!session.FindFence(args.reached.index, &reached) ||
      !session.FindFence(args.resume_index, &resume) || reached == nullptr || resume == nullptr) {
    return reply.Send(CudaError(kCudaErrorInvalidValue, "no such fence"));
  }
  reply.Send(session.device().coroutine->HostFunction(args.stream, reached, args.reached.value,
                                                      resume, args.resume_value));
}

}  // namespace detshare::handlers
