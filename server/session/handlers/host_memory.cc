#include "server/session/handlers/host_memory.h"

#include <limits.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "policy/status_macros.h"
#include "proto/wire/memory.h"
#include "server/base/logging.h"
#include "server/session/handlers/common.h"
#include "server/shared_memory/client_file.h"

namespace detshare::handlers {
namespace {

constexpr uint32_t kKnownFlags = 1 | 2 | 4;  // CU_MEMHOSTALLOC_PORTABLE, _DEVICEMAP, _WRITECOMBINED

void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// All devices of the session reach all of its pinned memory.
absl::Status Register(Session& session, uint64_t address, uint64_t bytes) {
  std::vector<SessionDevice>& devices = session.devices();
  for (size_t i = 0; i < devices.size(); ++i) {
    absl::Status status = devices[i].space->RegisterHost(Pointer(address), bytes);
    if (status.ok()) continue;
    for (size_t done = 0; done < i; ++done)
      (void)devices[done].space->UnregisterHost(Pointer(address));
    return status;
  }
  return absl::OkStatus();
}

// ... what was mapped just now, and is given up when that fails.
absl::Status RegisterNew(Session& session, uint64_t address, uint64_t bytes) {
  absl::Status status = Register(session, address, bytes);
  if (!status.ok()) session.pinned().Drop(address);
  return status;
}

// Unmaps what the window has given up.
void DropAll(Session& session, const std::vector<uint64_t>& addresses) {
  for (const uint64_t address : addresses) {
    for (SessionDevice& device : session.devices()) {
      if (absl::Status status = device.space->UnregisterHost(Pointer(address)); !status.ok()) {
        LogWarning(session.label(),
                   ": unregistering pinned memory: ", std::string(status.message()));
      }
    }
    session.pinned().Drop(address);
  }
}

// `allocate()`, and once more without the files that nobody uses when there was no room: what the
// program has freed must not be in its way.
template <typename Allocate>
absl::StatusOr<PinnedWindow::Allocation> AllocateWithRoom(Session& session, Allocate allocate) {
  absl::StatusOr<PinnedWindow::Allocation> allocation = allocate();
  if (!allocation.ok() && CudaResultOf(allocation.status()) == kCudaErrorOutOfMemory) {
    if (const std::vector<uint64_t> kept = session.pinned().FreeKept(); !kept.empty()) {
      DropAll(session, kept);
      allocation = allocate();
    }
  }
  if (!allocation.ok())
    return CudaError(kCudaErrorOutOfMemory, std::string(allocation.status().message()));
  return allocation;
}

// The allocation belongs to the current context from now on.
void Own(Session& session, uint64_t address) {
  session.pinned_owners()[address] = session.context();
  session.UpdatePinnedCounter();
}

void Free(Session& session, uint64_t address) {
  session.pinned_owners().erase(address);
  FreePinned(session, address);
}

Task<void> FreeWhenIdle(Session& session, uint64_t address, Reply reply) {
  absl::Status status;
  for (SessionDevice& device : session.devices()) {
    if (absl::Status idle = co_await device.coroutine->Idle(); !idle.ok()) status = idle;
  }
  // Memory of a session whose work is lost stays until its end: the device may still write to it.
  if (status.ok()) Free(session, address);
  reply.Send(status);
}

}  // namespace

absl::StatusOr<PinnedWindow::Allocation> AllocatePinned(Session& session, uint64_t bytes) {
  absl::StatusOr<PinnedWindow::Allocation> allocation =
      AllocateWithRoom(session, [&] { return session.pinned().Allocate(bytes); });
  if (!allocation.ok()) return allocation;
  if (allocation->fresh) {
    DETSHARE_RETURN_IF_ERROR(RegisterNew(session, allocation->address, allocation->file_bytes));
  }
  session.UpdatePinnedCounter();
  return allocation;
}

void FreePinned(Session& session, uint64_t address) {
  DropAll(session, session.pinned().Free(address));
  session.UpdatePinnedCounter();
}

void FreePinnedOf(Session& session, ContextId context) {
  std::vector<uint64_t> addresses;
  for (const auto& [address, owner] : session.pinned_owners()) {
    if (owner == context) addresses.push_back(address);
  }
  for (const uint64_t address : addresses) Free(session, address);
}

void cuMemHostAlloc(Session& session, const wire::cuMemHostAlloc& args, Payload, Reply& reply) {
  if (absl::Status known = session.UseContext(session.context()); !known.ok())
    return reply.Send(known);
  if (args.bytes == 0 || (args.flags & ~kKnownFlags) != 0) {
    return reply.Send(CudaError(kCudaErrorInvalidValue, "no bytes or unknown flags"));
  }
  const auto allocation = AllocatePinned(session, args.bytes);
  if (!allocation.ok()) return reply.Send(allocation.status());
  Own(session, allocation->address);
  reply.Send(wire::cuMemHostAlloc_Reply{allocation->address, allocation->file_bytes,
                                         allocation->file, 0});
}

void cuMemHostRegister_v2(Session& session, const wire::cuMemHostRegister_v2& args, Payload payload,
                          Reply& reply) {
  if (absl::Status known = session.UseContext(session.context()); !known.ok())
    return reply.Send(known);
  uint64_t end = 0;
  if (args.bytes == 0 || (args.bytes | args.file_offset) % kPageBytes != 0 ||
      args.file_offset > INT64_MAX || args.bytes > INT64_MAX ||
      __builtin_add_overflow(args.file_offset, args.bytes, &end) || payload.size() > NAME_MAX) {
    return reply.Send(CudaError(kCudaErrorInvalidValue, "no whole pages, or no name"));
  }
  const ClientMapping mapping{session.config().pid, session.config().owner.uid,
                              args.mapping_begin,   args.mapping_end,
                              args.device,          args.inode,
                              args.descriptor,      std::string(payload.begin(), payload.end())};
  const absl::StatusOr<int> fd = OpenClientFile(mapping, end);
  if (!fd.ok()) return reply.Send(fd.status());
  const auto allocation = AllocateWithRoom(
      session, [&] { return session.pinned().Adopt(*fd, args.file_offset, args.bytes); });
  close(*fd);
  if (!allocation.ok()) return reply.Send(allocation.status());
  if (absl::Status status = RegisterNew(session, allocation->address, allocation->file_bytes);
      !status.ok()) {
    return reply.Send(status);
  }
  Own(session, allocation->address);
  reply.Send(wire::cuMemHostRegister_v2_Reply{allocation->address});
}

void cuMemFreeHost(Session& session, const wire::cuMemFreeHost& args, Payload, Reply& reply) {
  // Whoever frees it first owns the reply: the address is unknown from here on, and reused only
  // after the wait.
  if (session.pinned().Find(args.address) == nullptr ||
      session.pinned_owners().erase(args.address) == 0) {
    return reply.Send(CudaError(kCudaErrorInvalidValue, "not pinned memory of this session"));
  }
  session.executor().Spawn(FreeWhenIdle(session, args.address, std::move(reply)));
}

}  // namespace detshare::handlers
