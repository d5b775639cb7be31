// Copies and memsets: every address and offset is checked to be the session's before the device
// sees it.
#include "coroutine_runtime/device_array.h"
#include "server/handlers/extent.h"
#include "server/handlers/requests.h"

namespace detshare::handlers {
namespace {

absl::Status Invalid(std::string_view what) { return CudaError(kCudaErrorInvalidValue, what); }

// Where `bytes` bytes at `location` are for the device. `payload` is that of the record.
absl::Status Resolve(Session& session, const wire::Location& location, uint64_t bytes, bool write,
                     Payload payload, DeviceAddress* address, bool* is_inline) {
  *is_inline = false;
  switch (location.space) {
    case wire::kAddress:
      if (!session.device().space->Contains(location.address, bytes, write)) {
        return Invalid("an address that is not the session's");
      }
      *address = location.address;
      return absl::OkStatus();
    case wire::kStaging:
      if (absl::Status usable = session.UseStaging(location.address, bytes); !usable.ok())
        return usable;
      *address = reinterpret_cast<DeviceAddress>(session.region().staging()) + location.address;
      return absl::OkStatus();
    case wire::kInline:
      if (bytes > kInlineCopyBytes || !Within(location.address, bytes, payload.size())) {
        return Invalid("a range outside of the record");
      }
      *address = reinterpret_cast<DeviceAddress>(payload.data()) + location.address;
      *is_inline = true;
      return absl::OkStatus();
  }
  return Invalid("an unknown kind of location");
}

// The place in the session's array that a location of space kArray names, all of whose box of
// `shape` is in it.
absl::Status ResolveArray(Session& session, const wire::PitchedLocation& location,
                          const CopyShape& shape, ArrayPlace* place) {
  const wire::ArrayPosition at = wire::PositionOf(location);
  const std::shared_ptr<Array> array = session.images().FindArray(&session.device(), at.array);
  if (array == nullptr) return CudaError(kCudaErrorInvalidHandle, "no such array");
  const ArrayDescription& description = array->description();
  if (at.level >= description.level_count()) return Invalid("a level that the array does not have");
  const ArrayExtent extent = LevelExtent(description, at.level);
  if (!Within(at.x, shape.width, extent.row_bytes) || !Within(at.y, shape.height, extent.rows) ||
      !Within(at.z, shape.depth, extent.slices) || at.x % description.texel_bytes() != 0 ||
      shape.width % description.texel_bytes() != 0) {
    return Invalid("a box that is not of whole texels in the array");
  }
  // The array ends when the session is idle (cuArrayDestroy) only, so it outlives the copy.
  *place = {array.get(), at.level, at.x, at.y, at.z};
  return absl::OkStatus();
}

// One side of a copy.
absl::Status ResolveSide(Session& session, const wire::PitchedLocation& side,
                         const CopyShape& shape, bool write, Payload payload,
                         DeviceAddress* address, ArrayPlace* array, bool* is_inline) {
  *is_inline = false;
  if (side.location.space == wire::kArray) return ResolveArray(session, side, shape, array);
  uint64_t bytes = 0;
  if (!PitchedExtent(shape, side.row_pitch, side.slice_pitch, &bytes))
    return Invalid("rows or slices that overlap or have no end");
  return Resolve(session, side.location, bytes, write, payload, address, is_inline);
}

// The copy, then its signal.
absl::Status Copy(Session& session, const wire::cuMemcpy3DAsync_v2& args, Payload payload) {
  CopyRequest request;
  bool any = false;
  if (absl::Status read = ReadCopy(session, args, payload, &request, &any); !read.ok()) return read;
  if (any) {
    absl::Status status = session.device().coroutine->Copy(args.stream, request);
    if (!status.ok()) return status;
  }
  return SignalStream(session, args.stream, args.signal);
}

}  // namespace

absl::Status ReadCopy(Session& session, const wire::cuMemcpy3DAsync_v2& args, Payload payload,
                      CopyRequest* request, bool* any) {
  *any = args.width != 0 && args.height != 0 && args.depth != 0;
  if (!*any) return absl::OkStatus();
  const CopyShape shape{args.width, args.height, args.depth};
  bool destination_inline = false;
  absl::Status resolved =
      ResolveSide(session, args.destination, shape, true, payload, &request->destination,
                  &request->destination_array, &destination_inline);
  if (!resolved.ok()) return resolved;
  if (destination_inline) return Invalid("a record is no destination");
  resolved = ResolveSide(session, args.source, shape, false, payload, &request->source,
                         &request->source_array, &request->inline_source);
  if (!resolved.ok()) return resolved;
  if (request->inline_source && request->destination_array.array != nullptr)
    return Invalid("a record is no source for an array");
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
                      bool* any) {
  if (args.element_bytes != 1 && args.element_bytes != 2 && args.element_bytes != 4) {
    return Invalid("elements of neither 1, 2 nor 4 bytes");
  }
  *any = args.width != 0 && args.height != 0;
  if (!*any) return absl::OkStatus();
  uint64_t bytes = 0;
  if (args.address % args.element_bytes != 0 ||
      (args.height > 1 && args.pitch % args.element_bytes != 0) ||
      __builtin_mul_overflow(args.width, uint64_t{args.element_bytes}, &bytes) ||
      !PitchedExtent({bytes, args.height, 1}, args.pitch, 0, &bytes)) {
    return Invalid("rows that overlap, are misaligned or have no end");
  }
  if (!session.device().space->Contains(args.address, bytes, true)) {
    return Invalid("an address that is not the session's");
  }
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
      {args.destination, 0, 0}, {args.source, 0, 0}, args.bytes, 1, 1, args.stream, 0, args.signal};
  reply.Send(Copy(session, linear, payload));
}

void cuMemcpy3DAsync_v2(Session& session, const wire::cuMemcpy3DAsync_v2& args, Payload payload,
                        Reply& reply) {
  reply.Send(Copy(session, args, payload));
}

void cuMemsetD2D32Async(Session& session, const wire::cuMemsetD2D32Async& args, Payload,
                        Reply& reply) {
  FillRequest request;
  bool any = false;
  absl::Status status = ReadFill(session, args, &request, &any);
  if (status.ok() && any) status = session.device().coroutine->Fill(args.stream, request);
  reply.Send(status);
}

}  // namespace detshare::handlers
