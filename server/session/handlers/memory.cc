// Device memory.
#include "proto/wire/memory.h"

#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "server/session/handlers/common.h"
#include "server/session/ipc_memory.h"
#include "server/session/session_memory.h"
#include "server/session/visible_memory.h"

namespace detshare::handlers {
namespace {

Task<void> Allocate(SessionDevice& device, ContextId context, uint64_t bytes, Reply reply) {
  const absl::StatusOr<DeviceAddress> address = co_await device.memory->Allocate(context, bytes);
  if (address.ok()) {
    reply.Send(wire::cuMemAlloc_v2_Reply{*address});
  } else {
    reply.Send(address.status());
  }
}

Task<void> AllocateAsync(SessionDevice& device, ContextId context, wire::cuMemAllocAsync args,
                         Reply reply) {
  const absl::StatusOr<DeviceAddress> address =
      co_await device.memory->AllocateAsync(context, args.bytes, args.stream, args.pool);
  if (address.ok()) {
    reply.Send(wire::cuMemAllocAsync_Reply{*address});
  } else {
    reply.Send(address.status());
  }
}

Task<void> Free(SessionDevice& device, DeviceAddress address, Reply reply) {
  reply.Send(co_await device.memory->Free(address));
}

}  // namespace

void cuMemAlloc_v2(Session& session, const wire::cuMemAlloc_v2& args, Payload, Reply& reply) {
  if (absl::Status known = session.UseContext(session.context()); !known.ok())
    return reply.Send(known);
  session.executor().Spawn(
      Allocate(session.device(), session.context(), args.bytes, std::move(reply)));
}

void cuMemAllocAsync(Session& session, const wire::cuMemAllocAsync& args, Payload, Reply& reply) {
  if (absl::Status known = session.UseContext(session.context()); !known.ok())
    return reply.Send(known);
  if (args.pool == DeviceMemory::kNoPool)
    return reply.Send(CudaError(kCudaErrorInvalidValue, "not the id of a pool"));
  session.executor().Spawn(
      AllocateAsync(session.device(), session.context(), args, std::move(reply)));
}

void cuMemFree_v2(Session& session, const wire::cuMemFree_v2& args, Payload, Reply& reply) {
  session.memory().ipc().Forget(args.address);
  session.executor().Spawn(Free(session.device(), args.address, std::move(reply)));
}

void cuMemFreeAsync(Session& session, const wire::cuMemFreeAsync& args, Payload, Reply& reply) {
  session.memory().ipc().Forget(args.address);
  SessionDevice& here = session.device();
  for (SessionDevice& owner : session.devices()) {
    if (&owner == &here || !owner.memory->Find(args.address)) continue;
    // Another device owns the memory. The memory becomes free when the stream's work so far is
    // complete.
    const absl::StatusOr<FencePoint> point = here.coroutine->Point(args.stream);
    return reply.Send(point.ok() ? owner.memory->FreeAtPoint(args.address, *point)
                                 : point.status());
  }
  reply.Send(here.memory->FreeAsync(args.address, args.stream));
}

void cuMemGetInfo_v2(Session& session, const wire::cuMemGetInfo_v2&, Payload, Reply& reply) {
  const Device::Memory memory = VisibleMemory(*session.device().device, session.device().quota);
  reply.Send(wire::cuMemGetInfo_v2_Reply{memory.free, memory.total});
}

}  // namespace detshare::handlers
