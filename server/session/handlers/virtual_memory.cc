// Virtual memory management, and sharing physical memory with other processes.
#include "proto/wire/virtual_memory.h"

#include <algorithm>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/shared_event.h"
#include "server/session/handlers/common.h"
#include "server/session/session_memory.h"
#include "server/session/shared_memory_objects.h"
#include "server/session/virtual_memory.h"

namespace detshare::handlers {
namespace {

static_assert(wire::kPhysicalUnit == kPhysicalGranule);
static_assert(sizeof(wire::ShareToken) == sizeof(ShareTokenValue));

// Converts CUmemAccess_flags. Returns false for unknown flags.
bool AccessOf(uint32_t flags, MemoryAccess* access) {
  switch (flags) {
    case 0:
      *access = MemoryAccess::kNone;
      return true;
    case 1:
      *access = MemoryAccess::kRead;
      return true;
    case 3:
      *access = MemoryAccess::kReadWrite;
      return true;
  }
  return false;
}

Task<void> Create(Session& session, SessionDevice& device, uint64_t bytes, Reply reply) {
  const absl::StatusOr<VirtualMemory::Id> id =
      co_await session.memory().virtual_memory().Create(device, bytes);
  if (id.ok()) {
    reply.Send(wire::cuMemCreate_Reply{*id, 0});
  } else {
    reply.Send(id.status());
  }
}

Task<void> Reserve(Session& session, SessionDevice& device, wire::cuMemAddressReserve args,
                   Reply reply) {
  const absl::StatusOr<DeviceAddress> address = co_await session.memory().virtual_memory().Reserve(
      device, args.bytes, args.alignment, args.address);
  if (address.ok()) {
    reply.Send(wire::cuMemAddressReserve_Reply{*address});
  } else {
    reply.Send(address.status());
  }
}

Task<void> Unmap(Session& session, wire::cuMemUnmap args, Reply reply) {
  reply.Send(co_await session.memory().virtual_memory().Unmap(args.address, args.bytes));
}

}  // namespace

void cuMemAddressReserve(Session& session, const wire::cuMemAddressReserve& args, Payload,
                         Reply& reply) {
  session.executor().Spawn(Reserve(session, session.device(), args, std::move(reply)));
}

void cuMemAddressFree(Session& session, const wire::cuMemAddressFree& args, Payload, Reply& reply) {
  reply.Send(session.memory().virtual_memory().FreeReservation(args.address, args.bytes));
}

void cuMemCreate(Session& session, const wire::cuMemCreate& args, Payload, Reply& reply) {
  session.executor().Spawn(Create(session, session.device(), args.bytes, std::move(reply)));
}

void cuMemRelease(Session& session, const wire::cuMemRelease& args, Payload, Reply& reply) {
  reply.Send(session.memory().virtual_memory().Release(args.memory));
}

void cuMemMap(Session& session, const wire::cuMemMap& args, Payload, Reply& reply) {
  reply.Send(session.memory().virtual_memory().Map(args.address, args.bytes, args.memory));
}

void cuMemUnmap(Session& session, const wire::cuMemUnmap& args, Payload, Reply& reply) {
  session.executor().Spawn(Unmap(session, args, std::move(reply)));
}

void cuMemSetAccess(Session& session, const wire::cuMemSetAccess& args, Payload, Reply& reply) {
  const size_t devices = std::min<size_t>(session.devices().size(), 16);
  if (args.devices >> devices != 0)
    return reply.Send(InvalidValue("a device that the session does not have"));
  for (size_t i = 0; i < devices; ++i) {
    if ((args.devices >> i & 1) == 0) continue;
    MemoryAccess access;
    if (!AccessOf(args.access >> (2 * i) & 3, &access))
      return reply.Send(InvalidValue("an unknown access"));
    absl::Status status = session.memory().virtual_memory().SetAccess(
        session.devices()[i], args.address, args.bytes, access);
    if (!status.ok()) return reply.Send(status);
  }
  reply.Send(absl::OkStatus());
}

void cuMemExportToShareableHandle(Session& session, const wire::cuMemExportToShareableHandle& args,
                                  Payload, Reply& reply) {
  const VirtualMemory::Named* const named = session.memory().virtual_memory().Find(args.memory);
  if (named == nullptr) return reply.Send(InvalidValue("no such physical memory"));
  const absl::StatusOr<ShareTokenValue> token = session.config().shared_memory_objects->Export(
      session.config().owner.uid,
      {named->memory, named->device->device, 0, named->memory->bytes()});
  if (!token.ok()) return reply.Send(token.status());
  wire::cuMemExportToShareableHandle_Reply body{};
  std::copy(token->begin(), token->end(), body.token.bytes);
  reply.Send(body);
}

void cuMemImportFromShareableHandle(Session& session,
                                    const wire::cuMemImportFromShareableHandle& args, Payload,
                                    Reply& reply) {
  ShareTokenValue token;
  std::copy(std::begin(args.token.bytes), std::end(args.token.bytes), token.begin());
  absl::StatusOr<SharedMemory> shared =
      session.config().shared_memory_objects->Import(session.config().owner.uid, token);
  if (!shared.ok()) return reply.Send(shared.status());
  // An IPC handle may name a part of physical memory. Only whole physical memory can be imported.
  if (shared->offset != 0 || shared->bytes != shared->memory->bytes())
    return reply.Send(InvalidValue("the handle names only a part of physical memory"));
  std::vector<SessionDevice>& devices = session.devices();
  const auto device = std::find_if(
      devices.begin(), devices.end(),
      [&](const SessionDevice& candidate) { return candidate.device == shared->device; });
  if (device == devices.end())
    return reply.Send(CudaError(kCudaErrorInvalidDevice, "memory of a device that is not visible"));
  const absl::StatusOr<VirtualMemory::Id> id =
      session.memory().virtual_memory().Adopt(shared->memory, *device);
  if (!id.ok()) return reply.Send(id.status());
  reply.Send(wire::cuMemImportFromShareableHandle_Reply{
      shared->bytes, *id, static_cast<uint32_t>(device - devices.begin())});
}

}  // namespace detshare::handlers
