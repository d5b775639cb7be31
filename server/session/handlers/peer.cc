// Access of the session's devices to each other's memory.
#include "proto/wire/peer.h"

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/executor.h"
#include "server/session/context_table.h"
#include "server/session/handlers/common.h"
#include "server/session/peer_access.h"
#include "server/session/session_memory.h"

namespace detshare::handlers {
namespace {

Task<void> Disable(Session& session, ContextId context, ContextId peer, Reply reply) {
  reply.Send(co_await session.memory().peer_access().Disable(context, peer));
}

}  // namespace

void cuCtxEnablePeerAccess(Session& session, const wire::cuCtxEnablePeerAccess& args, Payload,
                           Reply& reply) {
  if (absl::Status known = session.UseContext(session.context()); !known.ok())
    return reply.Send(known);
  SessionDevice& device = session.device();
  SessionDevice* const peer = session.DeviceAt(args.peer_device);
  if (peer == nullptr || peer == &device)
    return reply.Send(CudaError(kCudaErrorInvalidDevice, "not another device of the session"));
  // This adds the peer's context to the session if the client has not used it before.
  if (absl::Status known = session.contexts().Use(args.peer, *peer); !known.ok())
    return reply.Send(known);
  if (!Reaches(*device.device, *peer->device))
    return reply.Send(CudaError(kCudaErrorInvalidDevice, "the devices do not reach each other"));
  reply.Send(session.memory().peer_access().Enable(session.context(), device, args.peer, *peer));
}

void cuCtxDisablePeerAccess(Session& session, const wire::cuCtxDisablePeerAccess& args, Payload,
                            Reply& reply) {
  session.executor().Spawn(Disable(session, session.context(), args.peer, std::move(reply)));
}

}  // namespace detshare::handlers
