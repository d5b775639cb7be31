// Memory pools.
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "proto/wire/memory.h"
#include "server/session/handlers/common.h"
#include "server/session/peer_access.h"

namespace detshare::handlers {
namespace {

// CUmemPool_attribute
constexpr uint32_t kReleaseThreshold = 4, kReservedCurrent = 5, kReservedHigh = 6;
constexpr uint32_t kNoAccess = 0, kReadWrite = 3;  // CUmemAccess_flags
static_assert(wire::kDefaultPool == DeviceMemory::kDefaultPool);

Task<void> Unshare(SessionDevice& owner, SessionDevice& peer, PoolId pool, Reply reply) {
  absl::Status status = co_await peer.coroutine->Idle();
  // When work is lost, the peer keeps its access, because the work may still use the memory.
  if (status.ok()) status = owner.memory->UnsharePool(pool, *peer.space);
  reply.Send(status);
}

}  // namespace

void cuMemPoolCreate(Session& session, const wire::cuMemPoolCreate& args, Payload, Reply& reply) {
  if (args.pool == DeviceMemory::kNoPool) return reply.Send(InvalidValue("not the id of a pool"));
  reply.Send(session.device().memory->CreatePool(args.pool, args.max_bytes));
}

void cuMemPoolDestroy(Session& session, const wire::cuMemPoolDestroy& args, Payload, Reply& reply) {
  reply.Send(session.device().memory->DestroyPool(args.pool));
}

void cuMemPoolSetAttribute(Session& session, const wire::cuMemPoolSetAttribute& args, Payload,
                           Reply& reply) {
  DeviceMemory& memory = *session.device().memory;
  if (args.attribute == kReleaseThreshold)
    return reply.Send(memory.SetReleaseThreshold(args.pool, args.value));
  if (args.attribute != kReservedHigh || args.value != 0)
    return reply.Send(InvalidValue("an attribute that cannot be set to this value"));
  reply.Send(memory.ResetHighMark(args.pool));
}

void cuMemPoolGetAttribute(Session& session, const wire::cuMemPoolGetAttribute& args, Payload,
                           Reply& reply) {
  if (args.attribute != kReservedCurrent && args.attribute != kReservedHigh)
    return reply.Send(InvalidValue("an attribute that the shim keeps itself, or an unknown one"));
  const absl::StatusOr<DeviceMemory::PoolUse> use = session.device().memory->UseOf(args.pool);
  if (!use.ok()) return reply.Send(use.status());
  reply.Send(wire::cuMemPoolGetAttribute_Reply{
      args.attribute == kReservedCurrent ? use->reserved : use->reserved_high});
}

void cuMemPoolTrimTo(Session& session, const wire::cuMemPoolTrimTo& args, Payload, Reply& reply) {
  reply.Send(session.device().memory->TrimPool(args.pool, args.keep));
}

void cuMemPoolSetAccess(Session& session, const wire::cuMemPoolSetAccess& args, Payload,
                        Reply& reply) {
  SessionDevice& owner = session.device();
  SessionDevice* const peer = session.DeviceAt(args.device);
  if (peer == nullptr || peer == &owner)
    return reply.Send(CudaError(kCudaErrorInvalidDevice, "not another device of the session"));
  if (args.access == kNoAccess) {
    session.executor().Spawn(Unshare(owner, *peer, args.pool, std::move(reply)));
    return;
  }
  if (args.access != kReadWrite)
    return reply.Send(InvalidValue("an access that pools do not support"));
  if (!Reaches(*peer->device, *owner.device))
    return reply.Send(CudaError(kCudaErrorInvalidDevice, "the devices do not reach each other"));
  owner.coroutine->AddUser(*peer->coroutine);
  reply.Send(owner.memory->SharePool(args.pool, *peer->space));
}

}  // namespace detshare::handlers
