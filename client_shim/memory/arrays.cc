#include "client_shim/memory/arrays.h"

#include <algorithm>

#include "client_shim/objects/current_context.h"
#include "client_shim/transport/session.h"
#include "proto/wire/array.h"

namespace detshare::shim {
namespace {

using Table = HandleTable<ArrayObject>;

// Arrays, levels and mipmapped arrays. Never destroyed.
Table& arrays() {
  static Table* const table = new Table;
  return *table;
}

ArrayObject* Find(HandleKind kind, uint64_t handle) {
  ArrayObject* const array = arrays().Find(kind, handle);
  if (array == nullptr || array->context->id.load(std::memory_order_acquire) != array->context_id)
    return nullptr;
  return array;
}

// Whether the driver knows a format with so many channels.
bool IsFormat(CUarray_format format, unsigned int channels) {
  switch (format) {
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_BC4_UNORM:
    case CU_AD_FORMAT_BC4_SNORM:
      return channels == 1;
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_BC5_UNORM:
    case CU_AD_FORMAT_BC5_SNORM:
      return channels == 2;
    case CU_AD_FORMAT_BC6H_UF16:
    case CU_AD_FORMAT_BC6H_SF16:
      return channels == 3;
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT16X4:
    case CU_AD_FORMAT_UNORM_INT_101010_2:
    case CU_AD_FORMAT_BC1_UNORM:
    case CU_AD_FORMAT_BC1_UNORM_SRGB:
    case CU_AD_FORMAT_BC2_UNORM:
    case CU_AD_FORMAT_BC2_UNORM_SRGB:
    case CU_AD_FORMAT_BC3_UNORM:
    case CU_AD_FORMAT_BC3_UNORM_SRGB:
    case CU_AD_FORMAT_BC7_UNORM:
    case CU_AD_FORMAT_BC7_UNORM_SRGB:
      return channels == 4;
    case CU_AD_FORMAT_NV12:
    case CU_AD_FORMAT_P010:
    case CU_AD_FORMAT_P016:
    case CU_AD_FORMAT_NV16:
    case CU_AD_FORMAT_P210:
    case CU_AD_FORMAT_P216:
    case CU_AD_FORMAT_YUY2:
    case CU_AD_FORMAT_Y210:
    case CU_AD_FORMAT_Y216:
    case CU_AD_FORMAT_AYUV:
    case CU_AD_FORMAT_Y410:
    case CU_AD_FORMAT_Y416:
    case CU_AD_FORMAT_Y444_PLANAR8:
    case CU_AD_FORMAT_Y444_PLANAR10:
    case CU_AD_FORMAT_YUV444_8bit_SemiPlanar:
    case CU_AD_FORMAT_YUV444_16bit_SemiPlanar:
      return channels >= 1 && channels <= 4;
    default:
      return ChannelBytes(format) != 0 && (channels == 1 || channels == 2 || channels == 4);
  }
}

// Whether the driver would take the sides of an array that the daemon cannot ask it for.
bool SidesValid(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  const bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  const bool cube = (d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
  if (layered ? d.Depth == 0 : d.Depth != 0 && d.Height == 0) return false;
  if (cube &&
      (d.Width != d.Height || d.Depth == 0 || d.Depth % 6 != 0 || (!layered && d.Depth != 6))) {
    return false;
  }
  const bool solid = d.Depth != 0 && !layered && !cube;
  if ((d.Flags & CUDA_ARRAY3D_DEPTH_TEXTURE) != 0 && (d.NumChannels != 1 || solid)) return false;
  if ((d.Flags & CUDA_ARRAY3D_COLOR_ATTACHMENT) != 0) {
    constexpr size_t kLongestSide = 32768;
    return d.Height != 0 && !solid && d.Width <= kLongestSide && d.Height <= kLongestSide;
  }
  return true;
}

// Refuses descriptions that the daemon does not know or that make no sense. The daemon can ask a
// driver for all others. What makes no sense natively comes first.
CUresult CheckDescription(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  constexpr unsigned int kOffered = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                                    CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |
                                    CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
  constexpr unsigned int kKnown = 0x1FF;
  if ((d.Flags & ~kKnown) != 0 || d.Width == 0 || !IsFormat(d.Format, d.NumChannels))
    return CUDA_ERROR_INVALID_VALUE;
  if ((d.Flags & ~kOffered) == 0 && ChannelBytes(d.Format) != 0) return CUDA_SUCCESS;
  return SidesValid(d) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

// The description as the driver reads it: it drops the upper halves of the sides.
CUDA_ARRAY3D_DESCRIPTOR AsRead(CUDA_ARRAY3D_DESCRIPTOR description) {
  for (size_t* side : {&description.Width, &description.Height, &description.Depth})
    *side = static_cast<uint32_t>(*side);
  return description;
}

CUresult Create(HandleKind kind, const CUDA_ARRAY3D_DESCRIPTOR& description, uint32_t levels,
                uint64_t* handle) {
  Context* context;
  CUresult result = ContextForWork(&context);
  if (result != CUDA_SUCCESS) return result;
  result = CheckDescription(description);
  if (result != CUDA_SUCCESS) return result;
  // The place is reserved first, because an array of the daemon would have no handle in a full
  // table.
  uint32_t index;
  ArrayObject* const array = arrays().Reserve(&index);
  if (array == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const ContextId id = context->id.load(std::memory_order_acquire);
  wire::cuArray3DCreate_v2_Reply reply{};
  result = session().CallUnordered(
      Op::cuArray3DCreate_v2, context->device, id,
      wire::cuArray3DCreate_v2{description.Width, description.Height, description.Depth,
                               static_cast<uint32_t>(description.Format), description.NumChannels,
                               description.Flags, levels},
      &reply);
  if (result != CUDA_SUCCESS) {
    arrays().Recycle(index);
    return result;
  }
  array->index = index;
  array->id = reply.array;
  array->level = 0;
  array->levels = levels;
  array->is_level = false;
  array->mipmap = nullptr;
  array->context = context;
  array->context_id = id;
  array->device = context->device;
  array->description = description;
  array->level_handles.assign(levels, 0);
  *handle = array->handle = arrays().Publish(kind, index);
  return CUDA_SUCCESS;
}

// Ends the handle of a level. Its memory stays with the mipmapped array, which gives a new handle
// when it is asked for the level again.
CUresult ForgetLevel(const ArrayObject& level) {
  const uint64_t handle = level.handle;
  ArrayObject& mipmap = *level.mipmap;
  const std::lock_guard lock(mipmap.mutex);
  if (!arrays().Retire(handle)) return CUDA_ERROR_INVALID_HANDLE;
  // The program may have destroyed the mipmapped array meanwhile.
  if (level.level < mipmap.level_handles.size() && mipmap.level_handles[level.level] == handle)
    mipmap.level_handles[level.level] = 0;
  arrays().Recycle(Table::IndexOf(handle));
  return CUDA_SUCCESS;
}

CUresult Destroy(ArrayObject* array) {
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (array->is_level) return ForgetLevel(*array);
  const ArrayId id = array->id;
  const uint16_t device = array->device;
  const ContextId context = array->context_id;
  if (!arrays().Retire(array->handle)) return CUDA_ERROR_INVALID_HANDLE;
  for (const uint64_t handle : array->level_handles) {
    if (handle == 0 || !arrays().Retire(handle)) continue;
    arrays().Recycle(Table::IndexOf(handle));
  }
  arrays().Recycle(array->index);
  const CUresult result =
      session().Call(Op::cuArrayDestroy, device, context, wire::cuArrayDestroy{id, 0});
  // The call waits for earlier work, which may have printed.
  session().DrainOutput();
  return result;
}

}  // namespace

uint64_t ChannelBytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X4:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X4:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

bool IsNormalized(CUarray_format format) {
  return format >= CU_AD_FORMAT_UNORM_INT8X1 && format <= CU_AD_FORMAT_SNORM_INT16X4;
}

uint64_t ArrayObject::texel_bytes() const {
  return ChannelBytes(description.Format) * description.NumChannels;
}

ArrayObject* FindArray(CUarray handle) {
  return Find(HandleKind::kArray, reinterpret_cast<uint64_t>(handle));
}

ArrayObject* FindMipmappedArray(CUmipmappedArray handle) {
  return Find(HandleKind::kMipmappedArray, reinterpret_cast<uint64_t>(handle));
}

CUresult CreateArray(const CUDA_ARRAY3D_DESCRIPTOR& description, CUarray* handle) {
  uint64_t made = 0;
  const CUresult result = Create(HandleKind::kArray, AsRead(description), 0, &made);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUarray>(made);
  return result;
}

CUresult CreateMipmappedArray(const CUDA_ARRAY3D_DESCRIPTOR& asked, uint32_t levels,
                              CUmipmappedArray* handle) {
  const CUDA_ARRAY3D_DESCRIPTOR description = AsRead(asked);
  // More levels than the longest side can be halved mean as many as it can. There is at least one.
  uint64_t longest = std::max<uint64_t>(description.Width, description.Height);
  if ((description.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0)
    longest = std::max<uint64_t>(longest, description.Depth);
  uint32_t max = 1;
  while (max < 64 && longest >> max != 0) ++max;
  uint64_t made = 0;
  const CUresult result =
      Create(HandleKind::kMipmappedArray, description, std::clamp(levels, 1u, max), &made);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUmipmappedArray>(made);
  return result;
}

CUresult GetLevel(CUmipmappedArray handle, uint32_t level, CUarray* array) {
  ArrayObject* const mipmap = FindMipmappedArray(handle);
  if (mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (level >= mipmap->levels) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mipmap->mutex);
  uint64_t& known = mipmap->level_handles[level];
  if (known == 0) {
    uint32_t index;
    ArrayObject* const object = arrays().Reserve(&index);
    if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    object->index = index;
    object->id = mipmap->id;
    object->level = level;
    object->levels = 0;
    object->is_level = true;
    object->mipmap = mipmap;
    object->context = mipmap->context;
    object->context_id = mipmap->context_id;
    object->device = mipmap->device;
    object->description = mipmap->description;
    object->level_handles.clear();
    CUDA_ARRAY3D_DESCRIPTOR& d = object->description;
    const auto shrink = [level](size_t side) {
      return side == 0 ? 0 : std::max<size_t>(side >> level, 1);
    };
    d.Width = shrink(d.Width);
    d.Height = shrink(d.Height);
    if (!object->layered()) d.Depth = shrink(d.Depth);
    known = object->handle = arrays().Publish(HandleKind::kArray, index);
  }
  *array = reinterpret_cast<CUarray>(known);
  return CUDA_SUCCESS;
}

CUresult DestroyArray(CUarray handle) { return Destroy(FindArray(handle)); }
CUresult DestroyMipmappedArray(CUmipmappedArray handle) {
  return Destroy(FindMipmappedArray(handle));
}

CUresult FindArrayPlace(CUarray handle, uint64_t x_bytes, uint64_t y, uint64_t z, uint64_t width,
                        uint64_t height, uint64_t depth, uint16_t device,
                        wire::ArrayPosition* position) {
  const ArrayObject* const array = FindArray(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (array->device != device) return CUDA_ERROR_NOT_SUPPORTED;
  const auto within = [](uint64_t begin, uint64_t count, uint64_t size) {
    return begin <= size && count <= size - begin;
  };
  if (!within(x_bytes, width, array->row_bytes()) || !within(y, height, array->rows()) ||
      !within(z, depth, array->slices())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *position = {array->id, array->level, x_bytes, static_cast<uint32_t>(y),
               static_cast<uint32_t>(z)};
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim
