// Arrays, textures and surfaces.
#include "proto/wire/array.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <optional>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_array.h"
#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/quota.h"
#include "policy/status_macros.h"
#include "server/session/handlers/common.h"
#include "server/session/session_images.h"
#include "server/session/session_limits.h"

namespace detshare::handlers {
namespace {

using Kind = TextureResource::Kind;

absl::StatusOr<ImageDevice*> ImagesOf(Session& session) {
  ImageDevice* const images = session.device().device->images();
  if (images == nullptr)
    return CudaError(kCudaErrorNotSupported, "the device does not support arrays and textures");
  return images;
}

// Returns the size of a texel in bytes, or 0 when textures of memory do not support the format or the
// number of channels. Only arrays have formats of fractions.
uint32_t TexelBytesOf(uint32_t format, uint32_t channels) {
  if (NormalizedChannels(format) != 0) return 0;
  return channels == 1 || channels == 2 || channels == 4 ? ChannelBytes(format) * channels : 0;
}

// Destroys a texture, a surface or an array once all work submitted so far is complete. When work
// is lost, the object stays until the session ends, because a kernel may still use it.
Task<void> EndWhenIdle(Session& session, SessionDevice& device, OwnedImage image, Reply reply) {
  const absl::Status status = co_await device.coroutine->Idle();
  if (status.ok()) {
    const OwnedImage ended = std::move(image);
  } else {
    session.images().Keep(std::move(image));
  }
  reply.Send(status);
}

// ---- the resource, sampling and view of a texture

absl::Status ReadMemoryResource(Session& session, const wire::cuTexObjectCreate& args,
                                TextureResource* resource) {
  const uint64_t texel = TexelBytesOf(args.format, args.channels);
  if (texel == 0) return InvalidValue("an unknown format of texels");
  resource->address = args.address;
  resource->format = args.format;
  resource->channels = args.channels;
  if (resource->kind == Kind::kPitched) {
    // Rows may be empty and may overlap, as with the driver.
    uint64_t row, rows;
    if (args.height == 0 || __builtin_mul_overflow(args.width, texel, &row) ||
        __builtin_mul_overflow(args.pitch, args.height, &rows)) {
      return InvalidValue("no rows, or rows that are too long");
    }
  } else if (args.bytes == 0) {
    return InvalidValue("an empty texture");
  }
  // A texture may be larger than the memory in which it begins, as with the driver. A fetch from
  // beyond is what a load of a kernel from there is.
  if (!session.device().space->Contains(args.address, 1))
    return InvalidValue("an address outside the session's memory");
  resource->bytes = args.bytes;
  resource->width = args.width;
  resource->height = args.height;
  resource->pitch = args.pitch;
  return absl::OkStatus();
}

absl::Status ReadResource(Session& session, const wire::cuTexObjectCreate& args,
                          TextureResource* resource) {
  if (args.type > static_cast<uint32_t>(Kind::kPitched)) return InvalidValue("an unknown resource");
  resource->kind = static_cast<Kind>(args.type);
  if (resource->kind == Kind::kLinear || resource->kind == Kind::kPitched)
    return ReadMemoryResource(session, args, resource);
  resource->array = session.images().FindArray(&session.device(), args.array);
  if (resource->array == nullptr) return CudaError(kCudaErrorInvalidHandle, "no such array");
  const ArrayDescription& array = resource->array->description();
  if (resource->kind == Kind::kMipmappedArray) {
    return array.levels != 0 ? absl::OkStatus() : InvalidValue("an array without levels");
  }
  if (args.level >= array.level_count())
    return InvalidValue("a level that the array does not have");
  resource->level = args.level;
  return absl::OkStatus();
}

absl::Status ReadSampling(const wire::cuTexObjectCreate& args, TextureSampling* sampling) {
  // The driver takes also 4 and 8, which have no names in cuda.h.
  constexpr uint32_t kAddressModes = 4, kFilterModes = 2, kKnownFlags = 0x7f;
  for (const uint32_t mode : args.address_modes)
    if (mode >= kAddressModes) return InvalidValue("an unknown address mode");
  if (args.filter_mode >= kFilterModes || args.mipmap_filter_mode >= kFilterModes ||
      (args.flags & ~kKnownFlags) != 0) {
    return InvalidValue("an unknown filter mode or flag");
  }
  sampling->mipmap_level_bias = std::bit_cast<float>(args.mipmap_level_bias);
  sampling->min_mipmap_level_clamp = std::bit_cast<float>(args.min_mipmap_level_clamp);
  sampling->max_mipmap_level_clamp = std::bit_cast<float>(args.max_mipmap_level_clamp);
  if (std::isnan(sampling->mipmap_level_bias) || std::isnan(sampling->min_mipmap_level_clamp) ||
      std::isnan(sampling->max_mipmap_level_clamp)) {
    return InvalidValue("a level that is NaN");
  }
  std::copy(std::begin(args.address_modes), std::end(args.address_modes),
            sampling->address_modes.begin());
  sampling->filter_mode = args.filter_mode;
  sampling->flags = args.flags;
  sampling->max_anisotropy = args.max_anisotropy;
  sampling->mipmap_filter_mode = args.mipmap_filter_mode;
  std::transform(std::begin(args.border_color), std::end(args.border_color),
                 sampling->border_color.begin(),
                 [](uint32_t bits) { return std::bit_cast<float>(bits); });
  return absl::OkStatus();
}

// Returns the bytes of a view's texel, or of its block of 4 x 4 texels when `*blocks` becomes true.
// Returns 0 for an unknown format.
uint32_t ViewBytes(uint32_t format, bool* blocks) {
  constexpr uint32_t kFirstBlock = 0x19, kLast = 0x22;  // BC1 to BC7
  *blocks = format >= kFirstBlock;
  if (format == 0 || format > kLast) return 0;
  if (*blocks) {
    const bool half = format == kFirstBlock || format == 0x1c || format == 0x1d;  // BC1, BC4
    return half ? 8 : 16;
  }
  // Each group has the formats with one, two and four channels of one type. The types are unsigned
  // and signed integers of 8, 16 and 32 bits, then floats of 16 and 32 bits.
  constexpr uint32_t kChannelBytes[] = {1, 1, 2, 2, 4, 4, 2, 4};
  const uint32_t group = (format - 1) / 3, channels = 1u << (format - 1) % 3;
  return kChannelBytes[group] * channels;
}

// Checks that the view stays inside its array, because other sessions may own the memory behind it.
absl::Status ReadView(const wire::ResourceView& from, const TextureResource& resource,
                      TextureView* view) {
  if (resource.array == nullptr) return InvalidValue("a view of a texture without an array");
  const ArrayDescription& array = resource.array->description();
  bool blocks = false;
  // Format 0 is that of the array.
  if (from.format != 0 && ViewBytes(from.format, &blocks) != array.texel_bytes())
    return InvalidValue("a view whose texels differ in size from the array's");
  const uint64_t scale = blocks ? 4 : 1;
  const uint32_t levels = resource.kind == Kind::kMipmappedArray ? array.levels : 1;
  const ArrayExtent extent = LevelExtent(array, resource.level);
  const uint64_t layers = array.layered() ? extent.slices : 1;
  if (from.width == 0 || from.width > extent.row_bytes / array.texel_bytes() * scale ||
      from.height > extent.rows * scale || from.depth > extent.slices ||
      from.first_level > from.last_level || from.last_level >= levels ||
      from.first_layer > from.last_layer || from.last_layer >= layers) {
    return InvalidValue("a view that does not fit its array");
  }
  *view = {from.format,      from.width,      from.height,      from.depth,
           from.first_level, from.last_level, from.first_layer, from.last_layer};
  return absl::OkStatus();
}

absl::Status AddObject(Session& session, SessionImages::Kind kind, OwnedImage image) {
  image.context = session.context();
  if (!session.images().AddObject(&session.device(), kind, std::move(image)))
    return CudaError(kCudaErrorUnknown, "the device returned the same handle twice");
  return absl::OkStatus();
}

absl::Status CheckRoom(Session& session) {
  DETSHARE_RETURN_IF_ERROR(session.UseContext(session.context()));
  if (session.images().object_count() >= session.limits().image_objects)
    return CudaError(kCudaErrorOutOfMemory, "too many textures and surfaces");
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> CreateTexture(Session& session, const wire::cuTexObjectCreate& args) {
  DETSHARE_ASSIGN_OR_RETURN(ImageDevice* const device, ImagesOf(session));
  absl::Status status = CheckRoom(session);
  TextureRequest request;
  if (status.ok()) status = ReadResource(session, args, &request.resource);
  if (status.ok()) status = ReadSampling(args, &request.sampling);
  request.has_view = args.has_view != 0;
  if (status.ok() && request.has_view)
    status = ReadView(args.view, request.resource, &request.view);
  if (!status.ok()) return status;
  DETSHARE_ASSIGN_OR_RETURN(std::unique_ptr<ImageObject> texture,
                            device->CreateTexture(*session.device().space, request));
  const uint64_t handle = texture->handle();
  status = AddObject(session, SessionImages::Kind::kTexture,
                     {std::move(request.resource.array), std::move(texture)});
  if (!status.ok()) return status;
  return handle;
}

absl::StatusOr<uint64_t> CreateSurface(Session& session, const wire::cuSurfObjectCreate& args) {
  DETSHARE_ASSIGN_OR_RETURN(ImageDevice* const device, ImagesOf(session));
  DETSHARE_RETURN_IF_ERROR(CheckRoom(session));
  std::shared_ptr<Array> array = session.images().FindArray(&session.device(), args.array);
  if (array == nullptr) return CudaError(kCudaErrorInvalidHandle, "no such array");
  if (args.level >= array->description().level_count())
    return InvalidValue("a level that the array does not have");
  DETSHARE_ASSIGN_OR_RETURN(std::unique_ptr<ImageObject> surface,
                            device->CreateSurface(*session.device().space, array, args.level));
  const uint64_t handle = surface->handle();
  absl::Status status =
      AddObject(session, SessionImages::Kind::kSurface, {std::move(array), std::move(surface)});
  if (!status.ok()) return status;
  return handle;
}

void DestroyObject(Session& session, SessionImages::Kind kind, uint64_t handle, Reply& reply) {
  OwnedImage object = session.images().TakeObject(&session.device(), kind, handle);
  if (object.object == nullptr)
    return reply.Send(CudaError(kCudaErrorInvalidHandle, "no such texture or surface"));
  session.executor().Spawn(
      EndWhenIdle(session, session.device(), std::move(object), std::move(reply)));
}

}  // namespace

void cuArray3DCreate_v2(Session& session, const wire::cuArray3DCreate_v2& args, Payload,
                        Reply& reply) {
  const absl::StatusOr<ImageDevice*> images = ImagesOf(session);
  if (!images.ok()) return reply.Send(images.status());
  if (absl::Status known = session.UseContext(session.context()); !known.ok())
    return reply.Send(known);
  const ArrayDescription description{args.width,    args.height, args.depth, args.format,
                                     args.channels, args.flags,  args.levels};
  if (!IsArray(description)) return reply.Send(InvalidValue("an invalid description of an array"));
  if (session.images().array_count() >= session.limits().arrays)
    return reply.Send(CudaError(kCudaErrorOutOfMemory, "too many arrays"));
  DeviceMemory& memory = *session.device().memory;
  absl::StatusOr<QuotaCharge> charge = memory.TakeQuota(TexelBytes(description));
  if (!charge.ok()) return reply.Send(charge.status());
  absl::StatusOr<std::unique_ptr<Array>> array =
      (*images)->CreateArray(*session.device().space, description);
  if (CudaResultOf(array.status()) == kCudaErrorOutOfMemory) {
    memory.Trim(0);
    array = (*images)->CreateArray(*session.device().space, description);
  }
  if (!array.ok()) return reply.Send(array.status());
  const ArrayId id = session.images().AddArray(&session.device(), session.context(),
                                               *std::move(array), *std::move(charge));
  reply.Send(wire::cuArray3DCreate_v2_Reply{id, 0});
}

void cuArrayDestroy(Session& session, const wire::cuArrayDestroy& args, Payload, Reply& reply) {
  std::shared_ptr<Array> array = session.images().TakeArray(&session.device(), args.array);
  if (array == nullptr) return reply.Send(CudaError(kCudaErrorInvalidHandle, "no such array"));
  session.executor().Spawn(
      EndWhenIdle(session, session.device(), {std::move(array), nullptr}, std::move(reply)));
}

void cuTexObjectCreate(Session& session, const wire::cuTexObjectCreate& args, Payload,
                       Reply& reply) {
  const absl::StatusOr<uint64_t> handle = CreateTexture(session, args);
  if (!handle.ok()) return reply.Send(handle.status());
  reply.Send(wire::cuTexObjectCreate_Reply{*handle});
}

void cuTexObjectDestroy(Session& session, const wire::cuTexObjectDestroy& args, Payload,
                        Reply& reply) {
  DestroyObject(session, SessionImages::Kind::kTexture, args.handle, reply);
}

void cuSurfObjectCreate(Session& session, const wire::cuSurfObjectCreate& args, Payload,
                        Reply& reply) {
  const absl::StatusOr<uint64_t> handle = CreateSurface(session, args);
  if (!handle.ok()) return reply.Send(handle.status());
  reply.Send(wire::cuSurfObjectCreate_Reply{*handle});
}

void cuSurfObjectDestroy(Session& session, const wire::cuSurfObjectDestroy& args, Payload,
                         Reply& reply) {
  DestroyObject(session, SessionImages::Kind::kSurface, args.handle, reply);
}

void cuDeviceGetTexture1DLinearMaxWidth(Session& session,
                                        const wire::cuDeviceGetTexture1DLinearMaxWidth& args,
                                        Payload, Reply& reply) {
  const absl::StatusOr<ImageDevice*> images = ImagesOf(session);
  if (!images.ok()) return reply.Send(images.status());
  if (TexelBytesOf(args.format, args.channels) == 0)
    return reply.Send(InvalidValue("an unknown format of texels"));
  const absl::StatusOr<uint64_t> width = (*images)->LinearTextureWidth(args.format, args.channels);
  if (!width.ok()) return reply.Send(width.status());
  reply.Send(wire::cuDeviceGetTexture1DLinearMaxWidth_Reply{*width});
}

}  // namespace detshare::handlers
