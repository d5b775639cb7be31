// Contexts: the handlers wait for their work, destroy them and set limits.
#include "proto/wire/context.h"

#include <algorithm>
#include <utility>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "server/base/logging.h"
#include "server/session/code_table.h"
#include "server/session/context_table.h"
#include "server/session/graph_table.h"
#include "server/session/handlers/common.h"
#include "server/session/ipc_memory.h"
#include "server/session/managed_ranges.h"
#include "server/session/peer_access.h"
#include "server/session/pinned_memory.h"
#include "server/session/session_images.h"
#include "server/session/session_memory.h"

namespace detshare::handlers {
namespace {

Task<void> DestroyContext(Session& session, SessionDevice& device, ContextId context,
                          std::vector<OwnedImage> images, Reply reply) {
  absl::Status status = co_await device.coroutine->DestroyContext(context);
  // Work of other contexts and devices may still use what is freed below: memory and arrays have no
  // context for work, and a client that writes its ring itself can launch kernels in any context.
  for (SessionDevice& each : session.devices()) {
    const absl::Status idle = co_await each.coroutine->Idle();
    status.Update(idle);
  }
  // When work is lost, the context's objects stay until the session ends, because a device may
  // still use them.
  if (!status.ok()) {
    for (OwnedImage& image : images) session.images().Keep(std::move(image));
    reply.Send(status);
    co_return;
  }
  session.graphs().RemoveContext(context);
  images.clear();
  device.memory->FreeContext(context);
  session.memory().ipc().EndContext(context);
  session.code().RemoveLibrariesOf(context);
  session.memory().pinned().FreeOf(context);
  session.memory().managed().FreeOf(context);
  session.memory().peer_access().ForgetContext(context);
  session.contexts().Forget(context);
  reply.Send(status);
}

Task<void> ReplyWhenIdle(SessionDevice& device, ContextId context, Reply reply) {
  reply.Send(co_await device.coroutine->IdleContext(context));
}

}  // namespace

void cuCtxDestroy_v2(Session& session, const wire::cuCtxDestroy_v2& args, Payload, Reply& reply) {
  if (absl::Status known = session.UseContext(args.context); !known.ok()) return reply.Send(known);
  // The daemon might keep work that uses them, and that comes from now on, for longer (parking.h).
  session.code().EndLibrariesOf(args.context);
  std::vector<OwnedImage> images = session.images().TakeContext(args.context);
  session.executor().Spawn(
      DestroyContext(session, session.device(), args.context, std::move(images), std::move(reply)));
}

void cuCtxSynchronize(Session& session, const wire::cuCtxSynchronize& args, Payload, Reply& reply) {
  if ((args.flags & wire::kFlushOutput) != 0) {
    for (SessionDevice& device : session.devices()) device.device->FlushOutput(*device.space);
    return reply.Send(absl::OkStatus());
  }
  if ((args.flags & wire::kQueryWork) != 0) {
    const bool busy = std::any_of(session.devices().begin(), session.devices().end(),
                                  [](SessionDevice& device) { return device.space->Busy(); });
    return reply.Send(busy ? CudaError(kCudaErrorNotReady, "work is queued or running")
                           : absl::OkStatus());
  }
  if (absl::Status known = session.UseContext(args.context); !known.ok()) return reply.Send(known);
  Fence* fence = nullptr;
  if (!session.FindFence(args.signal.index, &fence)) {
    return reply.Send(CudaError(kCudaErrorInvalidValue, "no such fence"));
  }
  GpuCoroutine& coroutine = *session.device().coroutine;
  if (fence != nullptr) {
    if (absl::Status status = coroutine.SignalContext(args.context, fence, args.signal.value);
        !status.ok()) {
      return reply.Send(status);
    }
  }
  if (!reply.wanted()) return reply.Send(absl::OkStatus());
  session.executor().Spawn(ReplyWhenIdle(session.device(), args.context, std::move(reply)));
}

void cuCtxResetPersistingL2Cache(Session& session, const wire::cuCtxResetPersistingL2Cache&,
                                 Payload, Reply& reply) {
  reply.Send(session.device().device->ResetPersistingCache());
}

void cuCtxSetLimit(Session& session, const wire::cuCtxSetLimit& args, Payload, Reply& reply) {
  SessionDevice& device = session.device();
  const absl::StatusOr<Device::Limit> limit =
      device.device->SetLimit(*device.space, static_cast<int>(args.limit & 0x7FFFFFFF), args.value);
  if (!limit.ok()) return reply.Send(limit.status());
  if (limit->in_force < limit->value && !std::exchange(device.limit_noted, true)) {
    LogWarning(session.label(), ": asks for a limit (CUlimit ", args.limit, ") of ", limit->value,
               " bytes; its kernels get ", limit->in_force,
               ", because programs of the same isolation group share it and have used it already. "
               "Start the program first, or in a group of its own");
  }
  reply.Send(wire::cuCtxSetLimit_Reply{limit->value});
}

}  // namespace detshare::handlers
