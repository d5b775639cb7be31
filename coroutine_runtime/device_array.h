// Arrays, and the textures and surfaces through which kernels access them.
//
// An array is device memory without addresses. Copies name positions in it. Kernels access it
// through objects whose handles they get as parameters. Enumerations and flags are CUDA's, passed
// through.
//
//     Array (one level, or a mipmap's)  <--keeps alive--  ImageObject (texture or surface)
//
// The owner of an ImageObject also holds its array, and destroys the object first. In the reverse
// order, a device might let a kernel read memory that was since given to another session.
//
// Threading: any thread. Errors: as device.h.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"

namespace detshare {

// The meaningful numbers of CUDA's CUarray_format and CUDA_ARRAY3D_*.
enum class TexelFormat : uint32_t {
  kU8 = 0x01,
  kU16 = 0x02,
  kU32 = 0x03,
  kS8 = 0x08,
  kS16 = 0x09,
  kS32 = 0x0a,
  kF16 = 0x10,
  kF32 = 0x20,
  // Integers that textures read as fractions. Each has its number of channels.
  kUnorm8x1 = 0xc0,
  kUnorm8x2 = 0xc1,
  kUnorm8x4 = 0xc2,
  kUnorm16x1 = 0xc3,
  kUnorm16x2 = 0xc4,
  kUnorm16x4 = 0xc5,
  kSnorm8x1 = 0xc6,
  kSnorm8x2 = 0xc7,
  kSnorm8x4 = 0xc8,
  kSnorm16x1 = 0xc9,
  kSnorm16x2 = 0xca,
  kSnorm16x4 = 0xcb,
};
inline constexpr uint32_t kArrayLayered = 0x01;
inline constexpr uint32_t kArraySurface = 0x02;
inline constexpr uint32_t kArrayCubemap = 0x04;
inline constexpr uint32_t kArrayGather = 0x08;
// Video engines may use the array. Here it is an array as any other.
inline constexpr uint32_t kArrayVideo = 0x100;
inline constexpr uint32_t kArrayFlags =
    kArrayLayered | kArraySurface | kArrayCubemap | kArrayGather | kArrayVideo;

// Bytes of one channel; 0 if the format is not in TexelFormat.
constexpr uint32_t ChannelBytes(uint32_t format) {
  switch (static_cast<TexelFormat>(format)) {
    case TexelFormat::kU8:
    case TexelFormat::kS8:
    case TexelFormat::kUnorm8x1:
    case TexelFormat::kUnorm8x2:
    case TexelFormat::kUnorm8x4:
    case TexelFormat::kSnorm8x1:
    case TexelFormat::kSnorm8x2:
    case TexelFormat::kSnorm8x4:
      return 1;
    case TexelFormat::kU16:
    case TexelFormat::kS16:
    case TexelFormat::kF16:
    case TexelFormat::kUnorm16x1:
    case TexelFormat::kUnorm16x2:
    case TexelFormat::kUnorm16x4:
    case TexelFormat::kSnorm16x1:
    case TexelFormat::kSnorm16x2:
    case TexelFormat::kSnorm16x4:
      return 2;
    case TexelFormat::kU32:
    case TexelFormat::kS32:
    case TexelFormat::kF32:
      return 4;
  }
  return 0;
}

// The channels of a format whose integers are fractions; 0 for any other format.
constexpr uint32_t NormalizedChannels(uint32_t format) {
  constexpr uint32_t kFirst = static_cast<uint32_t>(TexelFormat::kUnorm8x1);
  constexpr uint32_t kLast = static_cast<uint32_t>(TexelFormat::kSnorm16x4);
  return format < kFirst || format > kLast ? 0 : 1u << (format - kFirst) % 3;
}

struct ArrayDescription {
  // In texels, of level 0. height 0: one-dimensional. depth 0: neither three-dimensional nor
  // layered. For layered arrays, depth counts layers; for cubemaps, faces (6 per cube).
  uint64_t width = 0, height = 0, depth = 0;
  uint32_t format = 0;    // TexelFormat
  uint32_t channels = 0;  // 1, 2 or 4
  uint32_t flags = 0;     // of kArrayFlags
  uint32_t levels = 0;    // of a mipmapped array; 0: an ordinary array

  constexpr uint32_t texel_bytes() const { return ChannelBytes(format) * channels; }
  constexpr uint32_t level_count() const { return levels == 0 ? 1 : levels; }
  constexpr bool layered() const { return (flags & (kArrayLayered | kArrayCubemap)) != 0; }
};

// A level as copies see it: `slices` layers or planes of `rows` rows.
struct ArrayExtent {
  uint64_t row_bytes = 0, rows = 0, slices = 0;
  constexpr uint64_t bytes() const { return row_bytes * rows * slices; }
};
constexpr ArrayExtent LevelExtent(const ArrayDescription& array, uint32_t level) {
  const auto shrink = [level](uint64_t side) { return side >> level == 0 ? 1 : side >> level; };
  return {shrink(array.width) * (ChannelBytes(array.format) * array.channels), shrink(array.height),
          (array.flags & (kArrayLayered | kArrayCubemap)) != 0
              ? (array.depth == 0 ? 1 : array.depth)
              : shrink(array.depth)};
}

// Whether a device can be asked for the array: a known format, consistent sides and a size that
// does not overflow. Devices may still refuse the sides.
constexpr bool IsArray(const ArrayDescription& array) {
  constexpr uint64_t kLongestSide = uint64_t{1} << 28;
  if (array.width == 0 || array.width > kLongestSide || array.height > kLongestSide ||
      array.depth > kLongestSide || ChannelBytes(array.format) == 0 ||
      (array.channels != 1 && array.channels != 2 && array.channels != 4) ||
      (NormalizedChannels(array.format) != 0 &&
       NormalizedChannels(array.format) != array.channels) ||
      (array.flags & ~kArrayFlags) != 0) {
    return false;
  }
  const bool layered = (array.flags & kArrayLayered) != 0;
  if (layered ? array.depth == 0 : array.depth != 0 && array.height == 0) return false;
  if ((array.flags & kArrayCubemap) != 0 && (array.width != array.height || array.depth % 6 != 0 ||
                                             array.depth == 0 || (!layered && array.depth != 6))) {
    return false;
  }
  if ((array.flags & kArrayGather) != 0 && (array.height == 0 || array.depth != 0)) return false;
  // The smallest possible level is the one whose sides are all 1.
  const uint64_t longest = layered || (array.flags & kArrayCubemap) != 0
                               ? (array.width > array.height ? array.width : array.height)
                               : (array.width > array.height
                                      ? (array.width > array.depth ? array.width : array.depth)
                                      : (array.height > array.depth ? array.height : array.depth));
  if (array.levels > static_cast<uint32_t>(std::bit_width(longest))) return false;
  const ArrayExtent extent = LevelExtent(array, 0);
  uint64_t bytes = 0;
  return !__builtin_mul_overflow(extent.row_bytes, extent.rows, &bytes) &&
         !__builtin_mul_overflow(bytes, extent.slices, &bytes) && bytes < uint64_t{1} << 48;
}

// The bytes of the array's texels in all levels. Devices may use more memory.
constexpr uint64_t TexelBytes(const ArrayDescription& array) {
  uint64_t bytes = 0;
  for (uint32_t level = 0; level < array.level_count(); ++level)
    bytes += LevelExtent(array, level).bytes();
  return bytes;
}

class Array {
 public:
  explicit Array(const ArrayDescription& description) : description_(description) {}
  // Frees the memory, soon: at a moment at which that does not drain the device. The caller ensures
  // that no work uses it.
  virtual ~Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  const ArrayDescription& description() const { return description_; }
  // Keeps what accounts for the memory until the memory is free.
  void KeepUntilFree(std::shared_ptr<const void> kept) { kept_ = std::move(kept); }

 protected:
  // For a destructor after which something else frees the memory: that must keep this.
  std::shared_ptr<const void> TakeKept() { return std::move(kept_); }

 private:
  const ArrayDescription description_;
  std::shared_ptr<const void> kept_;
};

// The memory that a texture reads.
struct TextureResource {
  enum class Kind : uint8_t { kArray, kMipmappedArray, kLinear, kPitched };  // as CUresourcetype
  Kind kind = Kind::kArray;
  std::shared_ptr<Array> array;  // kArray, kMipmappedArray
  uint32_t level = 0;            // kArray: which of its levels
  // kLinear, kPitched: memory of the session.
  DeviceAddress address = 0;
  uint32_t format = 0, channels = 0;
  uint64_t bytes = 0;                         // kLinear
  uint64_t width = 0, height = 0, pitch = 0;  // kPitched: texels, rows, bytes
};

// As CUDA_TEXTURE_DESC.
struct TextureSampling {
  std::array<uint32_t, 3> address_modes{};
  uint32_t filter_mode = 0;
  uint32_t flags = 0;
  uint32_t max_anisotropy = 0;
  uint32_t mipmap_filter_mode = 0;
  float mipmap_level_bias = 0;
  float min_mipmap_level_clamp = 0, max_mipmap_level_clamp = 0;
  std::array<float, 4> border_color{};
};

// As CUDA_RESOURCE_VIEW_DESC.
struct TextureView {
  uint32_t format = 0;
  uint64_t width = 0, height = 0, depth = 0;
  uint32_t first_level = 0, last_level = 0;
  uint32_t first_layer = 0, last_layer = 0;
};

struct TextureRequest {
  TextureResource resource;
  TextureSampling sampling;
  bool has_view = false;
  TextureView view;
};

// A texture or a surface. The caller ensures that no work uses it any more when it is destroyed.
class ImageObject {
 public:
  virtual ~ImageObject() = default;
  // The value that kernels get as their parameter (CUtexObject, CUsurfObject). Never 0. Unique
  // among the existing textures, or surfaces, of the device.
  virtual uint64_t handle() const = 0;
};

// The part of a device that creates arrays, textures and surfaces. No call drains the device. Only
// CreateArray() may wait for work of sessions, for a short time, if the card is full.
class ImageDevice {
 public:
  virtual ~ImageDevice() = default;
  // Creates a zeroed array. `description` satisfies IsArray(). CUDA_ERROR_OUT_OF_MEMORY if the card
  // is full; CUDA_ERROR_INVALID_VALUE for sides that the device does not support.
  virtual absl::StatusOr<std::unique_ptr<Array>> CreateArray(
      AddressSpace& space, const ArrayDescription& description) = 0;
  // The caller has checked that memory and array belong to the session.
  virtual absl::StatusOr<std::unique_ptr<ImageObject>> CreateTexture(
      AddressSpace& space, const TextureRequest& request) = 0;
  virtual absl::StatusOr<std::unique_ptr<ImageObject>> CreateSurface(AddressSpace& space,
                                                                     std::shared_ptr<Array> array,
                                                                     uint32_t level) = 0;
  // The maximum number of texels of a texture of kind kLinear.
  virtual absl::StatusOr<uint64_t> LinearTextureWidth(uint32_t format, uint32_t channels) = 0;
};

}  // namespace detshare
