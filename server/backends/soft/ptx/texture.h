// Textures and surfaces of kernels: images in memory, and how a texture samples an image.
//
// The results follow CUDA's documentation: the texel for a coordinate under each address mode,
// linear filtering with fractions of 8 bits, and conversion to normalised floats. Weighted sums are
// rounded once, so exact results equal those of hardware.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"

namespace detshare::soft::ptx {

// The values are those of CUDA's CUarray_format.
enum class TexelFormat : uint8_t {
  kU8 = 0x01,
  kU16 = 0x02,
  kU32 = 0x03,
  kS8 = 0x08,
  kS16 = 0x09,
  kS32 = 0x0a,
  kF16 = 0x10,
  kF32 = 0x20,
};
uint32_t ChannelBytes(TexelFormat format);

// A level of an image. It has `slices` planes, layers or faces of `height` rows each.
struct ImageLevel {
  uint64_t address = 0;  // in this process
  uint32_t width = 1, height = 1, slices = 1;
  uint64_t row_pitch = 0, slice_pitch = 0;  // bytes
};

struct Image {
  TexelFormat format = TexelFormat::kF32;
  uint32_t channels = 1;    // 1, 2 or 4
  bool normalized = false;  // integers of 8 and 16 bits are always read as fractions
  bool layered = false;     // slices are layers (or faces), not planes
  bool cubemap = false;
  // The image lies in the tenant's own memory: every access is checked like a load of the kernel.
  bool in_tenant_memory = false;
  std::vector<ImageLevel> levels;  // at least one

  uint32_t texel_bytes() const { return ChannelBytes(format) * channels; }
};

// The values are those of CUDA's CUaddress_mode.
enum class AddressMode : uint8_t { kWrap = 0, kClamp = 1, kMirror = 2, kBorder = 3 };

struct Sampler {
  std::array<AddressMode, 3> modes{};  // kWrap and kMirror need normalised coordinates
  bool linear = false;
  bool normalized_coordinates = false;
  bool read_as_integer = false;  // reads 8- and 16-bit integers as integers, not as fractions
  bool srgb = false;
  bool linear_between_levels = false;
  // For one-dimensional memory: texels outside read as 0 in every mode.
  bool zero_outside = false;
  float level_bias = 0, min_level = 0, max_level = 0;
  std::array<float, 4> border{};
};

struct Texture {
  Image image;
  Sampler sampler;
};

// The tenant's textures and surfaces. Any thread. A returned object must exist until the current
// BlockRunner::Run returns.
class ImageTable {
 public:
  virtual ~ImageTable() = default;
  virtual const Texture* FindTexture(uint64_t handle) const = 0;  // null: unknown handle
  virtual const Image* FindSurface(uint64_t handle) const = 0;
};

// How many coordinates an access has, and which dimensions they address.
enum class Geometry : uint8_t { k1d, k2d, k3d, kLayered1d, kLayered2d, kCube, kLayeredCube };
constexpr bool IsLayered(Geometry g) {
  return g == Geometry::kLayered1d || g == Geometry::kLayered2d || g == Geometry::kLayeredCube;
}
constexpr bool IsCube(Geometry g) { return g == Geometry::kCube || g == Geometry::kLayeredCube; }
// The number of coordinates without the layer.
constexpr uint32_t Dimensions(Geometry g) {
  switch (g) {
    case Geometry::k1d:
    case Geometry::kLayered1d:
      return 1;
    case Geometry::k2d:
    case Geometry::kLayered2d:
      return 2;
    default:
      return 3;
  }
}

struct SamplePoint {
  Geometry geometry = Geometry::k2d;
  uint32_t layer = 0;
  bool integer = false;             // the point is in `index`, not in `position`
  std::array<float, 3> position{};  // coordinates
  std::array<int32_t, 3> index{};   // texel indices
  std::array<int32_t, 3> offset{};  // in texels
  float level = 0;
};

// Returns a pointer to `bytes` bytes at an address; null when they are not the tenant's.
using TexelReader = absl::FunctionRef<const uint8_t*(uint64_t address, uint64_t bytes)>;

// Four channels, as the bits of floats, or of integers when the texture reads integers. Channels
// that the image lacks are 0. Sample and Gather return false when the reader refuses a texel. Then
// (*out)[0..1] is its address, low half first.
using Texel = std::array<uint32_t, 4>;
bool Sample(const Texture& texture, const SamplePoint& point, TexelReader read, Texel* out);
// Returns channel `channel` of the four texels of level 0 that linear filtering at the point uses,
// in the order of tld4.
bool Gather(const Texture& texture, const SamplePoint& point, uint32_t channel, TexelReader read,
            Texel* out);

// Whether reads return integers. 32-bit integers are always read so.
bool ReadsIntegers(const Texture& texture);

// Returns the level of detail for the derivatives `dx` and `dy` of the coordinates.
float LevelOfGradient(const Texture& texture, Geometry geometry, const std::array<float, 3>& dx,
                      const std::array<float, 3>& dy);

}  // namespace detshare::soft::ptx
