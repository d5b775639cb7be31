// Copies and memsets. The handlers check that every address and offset belongs to the session
// before the device sees it.
#include <algorithm>
#include <vector>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_array.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "policy/status_macros.h"
#include "server/session/handlers/extent.h"
#include "server/session/handlers/requests.h"
#include "server/session/session_images.h"
#include "server/session/session_memory.h"
#include "server/session/virtual_memory.h"
#include "server/shared_memory/shared_region.h"

namespace detshare::handlers {
namespace {

// One side of a copy.
struct Side {
  DeviceAddress address = 0;
  SessionDevice* owner = nullptr;  // null: memory of the host or of the record
  bool is_inline = false;
};

// Whether a range of the session's memory is host memory. Returns false when the session has one
// device, because the result makes no difference there.
bool IsHostMemory(Session& session, uint64_t address, uint64_t bytes) {
  // All devices reach host memory. It is the only memory outside of their windows that they reach.
  const std::vector<SessionDevice>& devices = session.devices();
  return devices.size() > 1 &&
         std::all_of(devices.begin(), devices.end(), [&](const SessionDevice& device) {
           return address - device.space->base() >= device.space->size() &&
                  device.space->Contains(address, bytes);
         });
}

// Sets `*side` to where the device finds the `bytes` bytes at `location`. `payload`: the record's
// payload.
absl::Status Resolve(Session& session, const wire::Location& location, uint64_t bytes, bool write,
                     Payload payload, Side* side) {
  switch (location.space) {
    case wire::kAddress:
      side->address = location.address;
      side->owner = session.memory().DeviceOf(session.device(), location.address, bytes, write);
      if (side->owner == nullptr) return InvalidValue("an address outside the session's memory");
      if (IsHostMemory(session, location.address, bytes)) side->owner = nullptr;
      return absl::OkStatus();
    case wire::kStaging:
      DETSHARE_RETURN_IF_ERROR(session.memory().UseStaging(location.address, bytes));
      side->address =
          reinterpret_cast<DeviceAddress>(session.region().staging()) + location.address;
      return absl::OkStatus();
    case wire::kInline:
      if (bytes > kInlineCopyBytes || !Within(location.address, bytes, payload.size())) {
        return InvalidValue("a range outside of the record");
      }
      side->address = reinterpret_cast<DeviceAddress>(payload.data()) + location.address;
      side->is_inline = true;
      return absl::OkStatus();
  }
  return InvalidValue("an unknown kind of location");
}

// Sets `*place` to the place in an array of the session that `location` names. The location is of
// space kArray. The whole box of size `shape` at that place must lie in the array.
absl::Status ResolveArray(Session& session, const wire::PitchedLocation& location,
                          const CopyShape& shape, ArrayPlace* place) {
  const wire::ArrayPosition at = wire::PositionOf(location);
  const std::shared_ptr<Array> array = session.images().FindArray(&session.device(), at.array);
  if (array == nullptr) return CudaError(kCudaErrorInvalidHandle, "no such array");
  const ArrayDescription& description = array->description();
  if (at.level >= description.level_count())
    return InvalidValue("a level that the array does not have");
  const ArrayExtent extent = LevelExtent(description, at.level);
  if (!Within(at.x, shape.width, extent.row_bytes) || !Within(at.y, shape.height, extent.rows) ||
      !Within(at.z, shape.depth, extent.slices)) {
    return InvalidValue("a box that is not inside the array");
  }
  // cuArrayDestroy destroys an array only when the session is idle, so the array outlives the copy.
  *place = {array.get(), at.level, at.x, at.y, at.z};
  return absl::OkStatus();
}

absl::Status ResolveSide(Session& session, const wire::PitchedLocation& location,
                         const CopyShape& shape, bool write, Payload payload, Side* side,
                         ArrayPlace* array) {
  if (location.location.space == wire::kArray) {
    side->owner = &session.device();
    return ResolveArray(session, location, shape, array);
  }
  uint64_t bytes = 0;
  if (!PitchedExtent(shape, location.row_pitch, location.slice_pitch, &bytes))
    return InvalidValue("rows or slices that overlap or are too long");
  return Resolve(session, location.location, bytes, write, payload, side);
}

// Returns the device that makes the copy. Sets the address space in `*request` of each side that
// lies on another device.
SessionDevice* ChooseDevice(Session& session, const Side& destination, const Side& source,
                            CopyRequest* request) {
  SessionDevice* const here = &session.device();
  if (destination.owner == nullptr || source.owner == nullptr) {
    // At least one side is host memory, which every device reaches.
    SessionDevice* const owner = destination.owner != nullptr ? destination.owner : source.owner;
    return owner != nullptr ? owner : here;
  }
  if (destination.owner != here) {
    request->destination_space = destination.owner->space.get();
    destination.owner->coroutine->AddUser(*here->coroutine);
  }
  if (source.owner != here) {
    request->source_space = source.owner->space.get();
    source.owner->coroutine->AddUser(*here->coroutine);
  }
  return here;
}

// Enqueues the copy, orders other streams behind it if the client takes it for complete, then gives
// its signal.
absl::Status Copy(Session& session, const wire::cuMemcpy3DAsync_v2& args, Payload payload) {
  CopyRequest request;
  SessionDevice* device = nullptr;
  absl::Status status = ReadCopy(session, args, payload, &request, &device);
  if (!status.ok()) return status;
  GpuCoroutine& here = *session.device().coroutine;
  if (device == &session.device()) [[likely]] {
    status = here.Copy(args.stream, request);
  } else if (device != nullptr) {
    status = here.CopyAt(*device->coroutine, args.stream, request);
  }
  if (status.ok() && args.synchronous != 0) status = here.OrderAllBehind(args.stream);
  if (!status.ok()) return status;
  return SignalStream(session, args.stream, args.signal);
}

}  // namespace

absl::Status ReadCopy(Session& session, const wire::cuMemcpy3DAsync_v2& args, Payload payload,
                      CopyRequest* request, SessionDevice** device) {
  *device = nullptr;
  if (args.width == 0 || args.height == 0 || args.depth == 0) return absl::OkStatus();
  const CopyShape shape{args.width, args.height, args.depth};
  Side destination, source;
  absl::Status resolved = ResolveSide(session, args.destination, shape, true, payload, &destination,
                                      &request->destination_array);
  if (!resolved.ok()) return resolved;
  if (destination.is_inline) return InvalidValue("a copy into a record");
  resolved =
      ResolveSide(session, args.source, shape, false, payload, &source, &request->source_array);
  if (!resolved.ok()) return resolved;
  if (source.is_inline && request->destination_array.array != nullptr)
    return InvalidValue("a copy from a record to an array");
  request->destination = destination.address;
  request->source = source.address;
  request->inline_source = source.is_inline;
  *device = ChooseDevice(session, destination, source, request);
  const bool arrays =
      request->destination_array.array != nullptr || request->source_array.array != nullptr;
  if (arrays && (request->destination_space != nullptr || request->source_space != nullptr))
    return CudaError(kCudaErrorNotSupported, "a copy between an array and another device");
  request->width = args.width;
  request->height = args.height;
  request->depth = args.depth;
  if (request->destination_array.array == nullptr) {
    request->destination_pitch = args.destination.row_pitch;
    request->destination_slice = args.destination.slice_pitch;
  }
  if (request->source_array.array == nullptr) {
    request->source_pitch = args.source.row_pitch;
    request->source_slice = args.source.slice_pitch;
  }
  return absl::OkStatus();
}

absl::Status ReadFill(Session& session, const wire::cuMemsetD2D32Async& args, FillRequest* request,
                      SessionDevice** device) {
  *device = nullptr;
  if (args.element_bytes != 1 && args.element_bytes != 2 && args.element_bytes != 4) {
    return InvalidValue("the size of an element is not 1, 2 or 4 bytes");
  }
  if (args.width == 0 || args.height == 0) return absl::OkStatus();
  uint64_t bytes = 0;
  if (args.address % args.element_bytes != 0 ||
      (args.height > 1 && args.pitch % args.element_bytes != 0) ||
      __builtin_mul_overflow(args.width, uint64_t{args.element_bytes}, &bytes) ||
      !PitchedExtent({bytes, args.height, 1}, args.pitch, 0, &bytes)) {
    return InvalidValue("rows that overlap, are misaligned or are too long");
  }
  *device = session.memory().DeviceOf(session.device(), args.address, bytes, /*write=*/true);
  if (*device == nullptr) return InvalidValue("an address outside the session's memory");
  // A stream may fill another device's memory of cuMemAlloc without access to it. It may fill
  // mapped memory (cuMemMap) only when its own device has access.
  if (*device != &session.device() &&
      session.memory().virtual_memory().Overlaps(args.address, bytes))
    return InvalidValue("mapped memory to which the stream's device has no access");
  request->address = args.address;
  request->pitch = args.pitch;
  request->width = args.width;
  request->height = args.height;
  request->value = args.value;
  request->element_bytes = static_cast<int>(args.element_bytes);
  return absl::OkStatus();
}

void cuMemcpyAsync(Session& session, const wire::cuMemcpyAsync& args, Payload payload,
                   Reply& reply) {
  const wire::cuMemcpy3DAsync_v2 linear{
      {args.destination, 0, 0}, {args.source, 0, 0}, args.bytes, 1, 1, args.stream,
      args.synchronous,         args.signal};
  reply.Send(Copy(session, linear, payload));
}

void cuMemcpy3DAsync_v2(Session& session, const wire::cuMemcpy3DAsync_v2& args, Payload payload,
                        Reply& reply) {
  reply.Send(Copy(session, args, payload));
}

void cuMemsetD2D32Async(Session& session, const wire::cuMemsetD2D32Async& args, Payload,
                        Reply& reply) {
  FillRequest request;
  SessionDevice* device = nullptr;
  absl::Status status = ReadFill(session, args, &request, &device);
  if (!status.ok() || device == nullptr) return reply.Send(status);
  GpuCoroutine& here = *session.device().coroutine;
  reply.Send(device == &session.device() ? here.Fill(args.stream, request)
                                         : here.FillAt(*device->coroutine, args.stream, request));
}

}  // namespace detshare::handlers
