// Copies and memsets: every address and offset is checked to be the session's before the device
// sees it.
#include "proto/wire/common.h"
#include "proto/wire/copy.h"
#include "server/handlers/common.h"
#include "server/handlers/extent.h"

namespace detshare::handlers {
namespace {

absl::Status Invalid(std::string_view what) { return CudaError(kCudaErrorInvalidValue, what); }

// Where `bytes` bytes at `location` are for the device. `payload` is that of the record.
absl::Status Resolve(Session& session, const wire::Location& location, uint64_t bytes,
                     Payload payload, DeviceAddress* address, bool* is_inline) {
  *is_inline = false;
  switch (location.space) {
    case wire::kAddress:
      if (!session.device().space->Contains(location.address, bytes)) {
        return Invalid("an address that is not the session's");
      }
      *address = location.address;
      return absl::OkStatus();
    case wire::kStaging:
      if (!Within(location.address, bytes, session.region().sizes().staging_bytes)) {
        return Invalid("a range outside of the staging area");
      }
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

absl::Status Copy(Session& session, StreamId stream, const wire::PitchedLocation& destination,
                  const wire::PitchedLocation& source, const CopyShape& shape, Payload payload) {
  if (shape.width == 0 || shape.height == 0 || shape.depth == 0) return absl::OkStatus();
  uint64_t destination_bytes = 0, source_bytes = 0;
  if (!PitchedExtent(shape, destination.row_pitch, destination.slice_pitch, &destination_bytes) ||
      !PitchedExtent(shape, source.row_pitch, source.slice_pitch, &source_bytes)) {
    return Invalid("rows or slices that overlap or have no end");
  }
  CopyRequest request;
  bool destination_inline = false;
  if (absl::Status resolved = Resolve(session, destination.location, destination_bytes, payload,
                                      &request.destination, &destination_inline);
      !resolved.ok()) {
    return resolved;
  }
  if (destination_inline) return Invalid("a record is no destination");
  if (absl::Status resolved = Resolve(session, source.location, source_bytes, payload,
                                      &request.source, &request.inline_source);
      !resolved.ok()) {
    return resolved;
  }
  request.width = shape.width;
  request.height = shape.height;
  request.depth = shape.depth;
  request.destination_pitch = destination.row_pitch;
  request.destination_slice = destination.slice_pitch;
  request.source_pitch = source.row_pitch;
  request.source_slice = source.slice_pitch;
  return session.device().coroutine->Copy(stream, request);
}

}  // namespace

void cuMemcpyAsync(Session& session, const wire::cuMemcpyAsync& args, Payload payload,
                   Reply& reply) {
  const CopyShape shape{args.bytes, 1, 1};
  absl::Status status =
      Copy(session, args.stream, {args.destination, 0, 0}, {args.source, 0, 0}, shape, payload);
  if (status.ok()) status = SignalStream(session, args.stream, args.signal);
  reply.Send(status);
}

void cuMemcpy3DAsync_v2(Session& session, const wire::cuMemcpy3DAsync_v2& args, Payload payload,
                        Reply& reply) {
  const CopyShape shape{args.width, args.height, args.depth};
  absl::Status status = Copy(session, args.stream, args.destination, args.source, shape, payload);
  if (status.ok()) status = SignalStream(session, args.stream, args.signal);
  reply.Send(status);
}

void cuMemsetD2D32Async(Session& session, const wire::cuMemsetD2D32Async& args, Payload,
                        Reply& reply) {
  if (args.element_bytes != 1 && args.element_bytes != 2 && args.element_bytes != 4) {
    return reply.Send(Invalid("elements of neither 1, 2 nor 4 bytes"));
  }
  if (args.width == 0 || args.height == 0) return reply.Send(absl::OkStatus());
  uint64_t bytes = 0;
  if (args.address % args.element_bytes != 0 ||
      (args.height > 1 && args.pitch % args.element_bytes != 0) ||
      __builtin_mul_overflow(args.width, uint64_t{args.element_bytes}, &bytes) ||
      !PitchedExtent({bytes, args.height, 1}, args.pitch, 0, &bytes)) {
    return reply.Send(Invalid("rows that overlap, are misaligned or have no end"));
  }
  if (!session.device().space->Contains(args.address, bytes)) {
    return reply.Send(Invalid("an address that is not the session's"));
  }
  FillRequest request;
  request.address = args.address;
  request.pitch = args.pitch;
  request.width = args.width;
  request.height = args.height;
  request.value = args.value;
  request.element_bytes = static_cast<int>(args.element_bytes);
  reply.Send(session.device().coroutine->Fill(args.stream, request));
}

}  // namespace detshare::handlers
