// Textures and surfaces as kernels see them: images in memory, and how a texture samples one.
//
// What CUDA documents decides the results: the texel that a coordinate names under each address
// mode, linear filtering with fractions of 8 bits, conversion to normalised floats. Weighted sums
// are rounded once, so that results are those of hardware wherever they are exact.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"

namespace detshare::soft::ptx {

// Numbers of CUDA's CUarray_format.
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

// One level of an image: `slices` planes, layers or faces of `height` rows.
struct ImageLevel {
  uint64_t address = 0;  // of this process
  uint32_t width = 1, height = 1, slices = 1;
  uint64_t row_pitch = 0, slice_pitch = 0;  // bytes
};

struct Image {
  TexelFormat format = TexelFormat::kF32;
  uint32_t channels = 1;  // 1, 2 or 4
  bool layered = false;   // slices are layers (or faces), not planes
  bool cubemap = false;
  // The tenant's own memory: every access is checked like one of a kernel's loads.
  bool in_tenant_memory = false;
  std::vector<ImageLevel> levels;  // one at least

  uint32_t texel_bytes() const { return ChannelBytes(format) * channels; }
};

// Numbers of CUDA's CUaddress_mode.
enum class AddressMode : uint8_t { kWrap = 0, kClamp = 1, kMirror = 2, kBorder = 3 };

struct Sampler {
  std::array<AddressMode, 3> modes{};  // kWrap and kMirror with normalised coordinates only
  bool linear = false;
  bool normalized_coordinates = false;
  bool read_as_integer = false;  // 8- and 16-bit integers as they are, not as fractions
  bool srgb = false;
  bool linear_between_levels = false;
  // One-dimensional memory: what lies outside reads as 0, whatever the mode.
  bool zero_outside = false;
  float level_bias = 0, min_level = 0, max_level = 0;
  std::array<float, 4> border{};
};

struct Texture {
  Image image;
  Sampler sampler;
};

// The tenant's textures and surfaces. Any thread. What it returns stays until the current
// BlockRunner::Run returns.
class ImageTable {
 public:
  virtual ~ImageTable() = default;
  virtual const Texture* FindTexture(uint64_t handle) const = 0;  // null: not the tenant's
  virtual const Image* FindSurface(uint64_t handle) const = 0;
};

// How many coordinates an access has, and which dimensions they address.
enum class Geometry : uint8_t { k1d, k2d, k3d, kLayered1d, kLayered2d, kCube, kLayeredCube };
constexpr bool IsLayered(Geometry g) {
  return g == Geometry::kLayered1d || g == Geometry::kLayered2d || g == Geometry::kLayeredCube;
}
constexpr bool IsCube(Geometry g) { return g == Geometry::kCube || g == Geometry::kLayeredCube; }
// Of the coordinates without the layer.
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
  bool integer = false;             // texel indices, in `index`
  std::array<float, 3> position{};  // else
  std::array<int32_t, 3> index{};
  std::array<int32_t, 3> offset{};  // in texels
  float level = 0;
};

// Where `bytes` bytes at an address are to be read; null: they are not the tenant's.
using TexelReader = absl::FunctionRef<const uint8_t*(uint64_t address, uint64_t bytes)>;

// Four channels, as the bits of floats, or of integers where the texture reads integers. Channels
// that the image lacks are 0. False when the reader refused a texel: its address is in
// (*out)[0..1], low half first.
using Texel = std::array<uint32_t, 4>;
bool Sample(const Texture& texture, const SamplePoint& point, TexelReader read, Texel* out);
// Channel `channel` of the four texels that linear filtering at the point would use, in the order
// of tld4. Of level 0.
bool Gather(const Texture& texture, const SamplePoint& point, uint32_t channel, TexelReader read,
            Texel* out);

// The level of detail for the derivatives of the coordinates of `geometry`.
float LevelOfGradient(const Texture& texture, Geometry geometry, const std::array<float, 3>& dx,
                      const std::array<float, 3>& dy);

}  // namespace detshare::soft::ptx
