// Managed memory whose pages move.
#include "coroutine_runtime/gpu_coroutine.h"
#include "proto/wire/memory.h"
#include "server/session/handlers/common.h"
#include "server/session/managed_ranges.h"
#include "server/session/session_memory.h"

namespace detshare::handlers {
namespace {

// Returns false if there is no such device.
bool FindPlace(Session& session, int32_t place, ManagedPlace* found) {
  *found = nullptr;
  if (place == wire::kPlaceHost) return true;
  const SessionDevice* const device =
      place >= 0 ? session.DeviceAt(static_cast<uint32_t>(place)) : nullptr;
  if (device == nullptr) return false;
  *found = device->device;
  return true;
}

absl::Status NotThere() {
  return CudaError(kCudaErrorInvalidValue, "not managed memory of this session, or no device");
}

}  // namespace

void cuMemAllocManaged(Session& session, const wire::cuMemAllocManaged& args, Payload,
                       Reply& reply) {
  if (absl::Status known = session.UseContext(session.context()); !known.ok())
    return reply.Send(known);
  if (args.bytes == 0) return reply.Send(CudaError(kCudaErrorInvalidValue, "no bytes"));
  ManagedRanges& managed = session.memory().managed();
  const absl::StatusOr<ManagedMemory::Range> range = managed.Allocate(session.device(), args.bytes);
  if (!range.ok()) return reply.Send(range.status());
  managed.Own(range->address, session.context());
  reply.Send(wire::cuMemAllocManaged_Reply{range->address, range->bytes});
}

void cuMemPrefetchAsync_v2(Session& session, const wire::cuMemPrefetchAsync_v2& args, Payload,
                           Reply& reply) {
  PrefetchRequest request{args.address, args.bytes, nullptr};
  if (args.bytes == 0 || !session.memory().managed().Contains(args.address, args.bytes) ||
      !FindPlace(session, args.place, &request.place)) {
    return reply.Send(NotThere());
  }
  reply.Send(session.device().coroutine->Prefetch(args.stream, request));
}

void cuMemAdvise_v2(Session& session, const wire::cuMemAdvise_v2& args, Payload, Reply& reply) {
  ManagedPlace place;
  if (args.bytes == 0 || !session.memory().managed().Contains(args.address, args.bytes) ||
      !FindPlace(session, args.place, &place)) {
    return reply.Send(NotThere());
  }
  reply.Send(session.memory().managed().Advise(args.address, args.bytes,
                                               static_cast<int>(args.advice), place));
}

}  // namespace detshare::handlers
