// Pinned host memory, and the end of managed memory.
#include <limits.h>
#include <unistd.h>

#include <string>

#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "proto/wire/memory.h"
#include "server/session/handlers/common.h"
#include "server/session/managed_ranges.h"
#include "server/session/pinned_memory.h"
#include "server/session/session_memory.h"
#include "server/shared_memory/client_file.h"

namespace detshare::handlers {
namespace {

constexpr uint32_t kKnownFlags = 1 | 2 | 4;  // CU_MEMHOSTALLOC_PORTABLE, _DEVICEMAP, _WRITECOMBINED

Task<void> FreeWhenIdle(Session& session, uint64_t address, Reply reply) {
  absl::Status status;
  for (SessionDevice& device : session.devices()) {
    if (absl::Status idle = co_await device.coroutine->Idle(); !idle.ok()) status = idle;
  }
  // When work is lost, the memory stays until the session ends, because a device may still write to
  // it.
  if (status.ok()) {
    session.memory().pinned().Free(address);
    session.memory().managed().Free(address);
  }
  reply.Send(status);
}

}  // namespace

void cuMemHostAlloc(Session& session, const wire::cuMemHostAlloc& args, Payload, Reply& reply) {
  if (absl::Status known = session.UseContext(session.context()); !known.ok())
    return reply.Send(known);
  if (args.bytes == 0 || (args.flags & ~kKnownFlags) != 0) {
    return reply.Send(CudaError(kCudaErrorInvalidValue, "no bytes or unknown flags"));
  }
  PinnedMemory& pinned = session.memory().pinned();
  const absl::StatusOr<PinnedMemory::Allocation> allocation = pinned.Allocate(args.bytes);
  if (!allocation.ok()) return reply.Send(allocation.status());
  pinned.Own(allocation->address, session.context());
  reply.Send(
      wire::cuMemHostAlloc_Reply{allocation->address, allocation->file_bytes, allocation->file, 0});
}

void cuMemHostRegister_v2(Session& session, const wire::cuMemHostRegister_v2& args, Payload payload,
                          Reply& reply) {
  if (absl::Status known = session.UseContext(session.context()); !known.ok())
    return reply.Send(known);
  uint64_t end = 0;
  if (args.bytes == 0 || (args.bytes | args.file_offset) % kPageBytes != 0 ||
      args.file_offset > INT64_MAX || args.bytes > INT64_MAX ||
      __builtin_add_overflow(args.file_offset, args.bytes, &end) || payload.size() > NAME_MAX) {
    return reply.Send(
        CudaError(kCudaErrorInvalidValue, "not whole pages, or a name that is too long"));
  }
  const ClientMapping mapping{session.config().pid, session.config().owner.uid,
                              args.mapping_begin,   args.mapping_end,
                              args.device,          args.inode,
                              args.descriptor,      std::string(payload.begin(), payload.end())};
  const absl::StatusOr<int> fd = session.config().open_file(mapping, end);
  if (!fd.ok()) return reply.Send(fd.status());
  PinnedMemory& pinned = session.memory().pinned();
  const absl::StatusOr<PinnedMemory::Allocation> allocation =
      pinned.Adopt(*fd, args.file_offset, args.bytes,
                   args.mapping_begin + uint64_t{args.first_page} * kPageBytes);
  close(*fd);
  if (!allocation.ok()) return reply.Send(allocation.status());
  pinned.Own(allocation->address, session.context());
  reply.Send(wire::cuMemHostRegister_v2_Reply{allocation->address});
}

void cuMemFreeHost(Session& session, const wire::cuMemFreeHost& args, Payload, Reply& reply) {
  // Disown() makes the address unknown at once, so a second free of it fails. The address is reused
  // only after the wait.
  if (!session.memory().pinned().Disown(args.address) &&
      !session.memory().managed().Disown(args.address)) {
    return reply.Send(
        CudaError(kCudaErrorInvalidValue, "not pinned or managed memory of this session"));
  }
  session.executor().Spawn(FreeWhenIdle(session, args.address, std::move(reply)));
}

}  // namespace detshare::handlers
