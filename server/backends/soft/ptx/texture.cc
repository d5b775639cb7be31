#include "server/backends/soft/ptx/texture.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "server/backends/soft/ptx/half.h"

namespace detshare::soft::ptx {
namespace {

// Filtered and converted channels. `bits` has the integers.
struct Channels {
  std::array<double, 4> value{};
  std::array<uint32_t, 4> bits{};
};

bool IsInteger(TexelFormat format) {
  return format != TexelFormat::kF16 && format != TexelFormat::kF32;
}

double LinearOfSrgb(double c) {
  return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
}

void Decode(const Texture& t, const uint8_t* texel, Channels* out) {
  const Image& image = t.image;
  const bool integers = ReadsIntegers(t);
  const uint32_t bytes = ChannelBytes(image.format);
  for (uint32_t c = 0; c < image.channels; ++c) {
    // Kernels of the tenant may write to the texel at the same time, as on hardware.
    uint32_t raw = 0;
    std::memcpy(&raw, texel + c * bytes, bytes);
    double value = 0;
    switch (image.format) {
      case TexelFormat::kU8:
        value = raw / 255.0;
        if (t.sampler.srgb && c < 3) value = LinearOfSrgb(value);
        break;
      case TexelFormat::kU16:
        value = raw / 65535.0;
        break;
      case TexelFormat::kS8:
        raw = static_cast<uint32_t>(static_cast<int8_t>(raw));
        value = std::max(static_cast<int32_t>(raw) / 127.0, -1.0);
        break;
      case TexelFormat::kS16:
        raw = static_cast<uint32_t>(static_cast<int16_t>(raw));
        value = std::max(static_cast<int32_t>(raw) / 32767.0, -1.0);
        break;
      case TexelFormat::kF16:
        value = HalfToFloat(static_cast<uint16_t>(raw));
        break;
      case TexelFormat::kF32:
        value = std::bit_cast<float>(raw);
        break;
      case TexelFormat::kU32:
      case TexelFormat::kS32:
        break;
    }
    if (integers) {
      out->bits[c] = raw;
    } else {
      // Each texel becomes a float before it is weighted.
      out->value[c] = static_cast<float>(value);
    }
  }
}

void Border(const Texture& t, Channels* out) {
  const bool integers = ReadsIntegers(t);
  for (uint32_t c = 0; c < t.image.channels; ++c) {
    const float value = t.sampler.zero_outside ? 0.0f : t.sampler.border[c];
    if (integers) {
      out->bits[c] = static_cast<uint32_t>(static_cast<int64_t>(
          std::clamp(std::isnan(value) ? 0.0f : value, -2147483648.0f, 4294967040.0f)));
    } else {
      out->value[c] = value;
    }
  }
}

// Returns the texel for index `i` of a side of `size` texels, or -1 for the border.
int64_t Resolve(int64_t i, int64_t size, AddressMode mode) {
  if (i >= 0 && i < size) return i;
  switch (mode) {
    case AddressMode::kWrap:
      i %= size;
      return i < 0 ? i + size : i;
    case AddressMode::kMirror:
      i %= 2 * size;
      if (i < 0) i += 2 * size;
      return i < size ? i : 2 * size - 1 - i;
    case AddressMode::kClamp:
      return i < 0 ? 0 : size - 1;
    case AddressMode::kBorder:
      break;
  }
  return -1;
}

// A position along one dimension: its two neighbours, and the weight of the second in 1/256.
struct Neighbours {
  int64_t first = 0, second = 0;
  uint32_t weight = 0;
};

class Sampling {
 public:
  Sampling(const Texture& texture, const SamplePoint& point, TexelReader read)
      : texture_(texture), read_(read), integer_(point.integer), dimensions_(0) {
    const Sampler& sampler = texture.sampler;
    modes_ = sampler.modes;
    normalized_ = sampler.normalized_coordinates && !point.integer;
    // Without normalised coordinates kWrap and kMirror mean kClamp.
    if (!normalized_) {
      for (AddressMode& mode : modes_)
        if (mode != AddressMode::kBorder) mode = AddressMode::kClamp;
    }
    if (sampler.zero_outside) modes_.fill(AddressMode::kBorder);
    if (IsCube(point.geometry)) {
      PlaceOnFace(point);
    } else {
      dimensions_ = Dimensions(point.geometry);
      position_ = point.position;
      index_ = point.index;
      slice_ = IsLayered(point.geometry) ? point.layer : 0;
    }
    offset_ = point.offset;
  }

  bool At(uint32_t level, bool linear, Channels* out) {
    const ImageLevel& image = texture_.image.levels[level];
    if (!linear) {
      std::array<int64_t, 3> at{};
      for (uint32_t d = 0; d < dimensions_; ++d) {
        at[d] = integer_ ? int64_t{index_[d]} + offset_[d] : Floor(Scaled(d, image)) + offset_[d];
      }
      return Fetch(image, at, out);
    }
    std::array<Neighbours, 3> near;
    for (uint32_t d = 0; d < dimensions_; ++d) near[d] = Around(d, image);
    std::array<double, 4> sum{};
    for (uint32_t corner = 0; corner < (1u << dimensions_); ++corner) {
      std::array<int64_t, 3> at{};
      double weight = 1;
      for (uint32_t d = 0; d < dimensions_; ++d) {
        const bool second = (corner >> d & 1) != 0;
        at[d] = second ? near[d].second : near[d].first;
        weight *= (second ? near[d].weight : 256 - near[d].weight) / 256.0;
      }
      if (weight == 0) continue;  // otherwise an infinite texel would make the sum NaN
      Channels texel;
      if (!Fetch(image, at, &texel)) {
        *out = texel;
        return false;
      }
      for (uint32_t c = 0; c < 4; ++c) sum[c] += weight * texel.value[c];
    }
    out->value = sum;
    return true;
  }

  // Reads one of the four texels around the point, in the order (0, 1), (1, 1), (1, 0), (0, 0).
  bool Corner(uint32_t corner, Channels* out) {
    const ImageLevel& image = texture_.image.levels[0];
    const Neighbours x = Around(0, image), y = Around(1, image);
    const std::array<int64_t, 3> at{corner == 1 || corner == 2 ? x.second : x.first,
                                    corner < 2 ? y.second : y.first, 0};
    return Fetch(image, at, out);
  }

 private:
  static int64_t Floor(double value) {
    constexpr double kFar = 1 << 30;
    if (std::isnan(value)) return 0;
    return static_cast<int64_t>(std::floor(std::clamp(value, -kFar, kFar)));
  }

  static int64_t Size(uint32_t d, const ImageLevel& image) {
    return d == 0 ? image.width : d == 1 ? image.height : image.slices;
  }

  double Scaled(uint32_t d, const ImageLevel& image) const {
    const double position = position_[d];
    return normalized_ ? position * static_cast<double>(Size(d, image)) : position;
  }

  Neighbours Around(uint32_t d, const ImageLevel& image) const {
    const int64_t fixed = Floor((Scaled(d, image) - 0.5) * 256 + 0.5);
    Neighbours near;
    near.first = (fixed >> 8) + offset_[d];
    near.second = near.first + 1;
    near.weight = static_cast<uint32_t>(fixed & 255);
    return near;
  }

  bool Fetch(const ImageLevel& image, const std::array<int64_t, 3>& at, Channels* out) {
    std::array<int64_t, 3> texel{};
    for (uint32_t d = 0; d < dimensions_; ++d) {
      texel[d] = Resolve(at[d], Size(d, image), modes_[d]);
      if (texel[d] < 0) {
        Border(texture_, out);
        return true;
      }
    }
    if (dimensions_ < 3) texel[2] = std::min<int64_t>(slice_, int64_t{image.slices} - 1);
    const uint32_t bytes = texture_.image.texel_bytes();
    const uint64_t address = image.address + static_cast<uint64_t>(texel[2]) * image.slice_pitch +
                             static_cast<uint64_t>(texel[1]) * image.row_pitch +
                             static_cast<uint64_t>(texel[0]) * bytes;
    const uint8_t* const memory = texture_.image.in_tenant_memory
                                      ? read_(address, bytes)
                                      : reinterpret_cast<const uint8_t*>(address);
    if (memory == nullptr) {
      out->bits = {static_cast<uint32_t>(address), static_cast<uint32_t>(address >> 32), 0, 0};
      return false;
    }
    Decode(texture_, memory, out);
    return true;
  }

  // Turns a direction into a face and a position on it.
  void PlaceOnFace(const SamplePoint& point) {
    const double x = point.position[0], y = point.position[1], z = point.position[2];
    const double ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
    double s = 0, t = 0, m = 0;
    uint32_t face = 0;
    if (ax >= ay && ax >= az) {
      face = x >= 0 ? 0 : 1;
      m = ax;
      s = x >= 0 ? -z : z;
      t = -y;
    } else if (ay >= az) {
      face = y >= 0 ? 2 : 3;
      m = ay;
      s = x;
      t = y >= 0 ? z : -z;
    } else {
      face = z >= 0 ? 4 : 5;
      m = az;
      s = z >= 0 ? x : -x;
      t = -y;
    }
    if (m == 0) m = 1;
    dimensions_ = 2;
    position_ = {static_cast<float>((s / m + 1) / 2), static_cast<float>((t / m + 1) / 2), 0};
    normalized_ = true;
    modes_.fill(AddressMode::kClamp);
    slice_ = uint64_t{IsLayered(point.geometry) ? point.layer : 0} * 6 + face;
  }

  const Texture& texture_;
  const TexelReader read_;
  const bool integer_;
  bool normalized_ = false;
  uint32_t dimensions_;
  uint64_t slice_ = 0;
  std::array<AddressMode, 3> modes_{};
  std::array<float, 3> position_{};
  std::array<int32_t, 3> index_{}, offset_{};
};

void Encode(const Texture& texture, const Channels& from, Texel* to) {
  if (ReadsIntegers(texture)) {
    *to = from.bits;
    return;
  }
  for (uint32_t c = 0; c < 4; ++c)
    (*to)[c] = std::bit_cast<uint32_t>(static_cast<float>(from.value[c]));
}

bool Refused(const Channels& at, Texel* out) {
  *out = at.bits;
  return false;
}

}  // namespace

uint32_t ChannelBytes(TexelFormat format) {
  switch (format) {
    case TexelFormat::kU8:
    case TexelFormat::kS8:
      return 1;
    case TexelFormat::kU16:
    case TexelFormat::kS16:
    case TexelFormat::kF16:
      return 2;
    default:
      return 4;
  }
}

bool ReadsIntegers(const Texture& t) {
  return IsInteger(t.image.format) && !t.image.normalized &&
         (t.sampler.read_as_integer || t.image.format == TexelFormat::kU32 ||
          t.image.format == TexelFormat::kS32);
}

bool Sample(const Texture& texture, const SamplePoint& point, TexelReader read, Texel* out) {
  const Sampler& sampler = texture.sampler;
  const bool linear = sampler.linear && !point.integer && !ReadsIntegers(texture);
  Sampling sampling(texture, point, read);
  const uint32_t last = static_cast<uint32_t>(texture.image.levels.size()) - 1;
  double level = 0;
  if (last > 0 && !point.integer) {
    level = std::clamp(static_cast<double>(point.level) + sampler.level_bias,
                       static_cast<double>(sampler.min_level),
                       static_cast<double>(std::max(sampler.min_level, sampler.max_level)));
    level = std::isnan(level) ? 0 : std::clamp(level, 0.0, static_cast<double>(last));
  } else if (point.integer) {
    level = std::clamp(static_cast<double>(point.level), 0.0, static_cast<double>(last));
  }
  Channels result;
  if (!sampler.linear_between_levels || point.integer || ReadsIntegers(texture)) {
    const auto nearest = static_cast<uint32_t>(std::min(std::floor(level + 0.5), double{1} * last));
    if (!sampling.At(nearest, linear, &result)) return Refused(result, out);
    Encode(texture, result, out);
    return true;
  }
  const auto fixed = static_cast<uint32_t>(std::floor(level * 256 + 0.5));
  const uint32_t first = std::min(fixed >> 8, last);
  const double weight = first == last ? 0 : (fixed & 255) / 256.0;
  if (!sampling.At(first, linear, &result)) return Refused(result, out);
  if (weight != 0) {
    Channels next;
    if (!sampling.At(first + 1, linear, &next)) return Refused(next, out);
    for (uint32_t c = 0; c < 4; ++c)
      result.value[c] = (1 - weight) * result.value[c] + weight * next.value[c];
  }
  Encode(texture, result, out);
  return true;
}

bool Gather(const Texture& texture, const SamplePoint& point, uint32_t channel, TexelReader read,
            Texel* out) {
  Sampling sampling(texture, point, read);
  for (uint32_t corner = 0; corner < 4; ++corner) {
    Channels texel;
    if (!sampling.Corner(corner, &texel)) return Refused(texel, out);
    Texel encoded;
    Encode(texture, texel, &encoded);
    (*out)[corner] = encoded[channel];
  }
  return true;
}

float LevelOfGradient(const Texture& texture, Geometry geometry, const std::array<float, 3>& dx,
                      const std::array<float, 3>& dy) {
  const ImageLevel& image = texture.image.levels[0];
  const std::array<double, 3> sizes{static_cast<double>(image.width),
                                    static_cast<double>(image.height),
                                    static_cast<double>(image.slices)};
  double longest = 0;
  for (const std::array<float, 3>& d : {dx, dy}) {
    double square = 0;
    for (uint32_t i = 0; i < std::min(Dimensions(geometry), 3u); ++i) {
      const double step =
          d[i] * (texture.sampler.normalized_coordinates ? sizes[IsCube(geometry) ? 0 : i] : 1);
      square += step * step;
    }
    longest = std::max(longest, square);
  }
  return longest > 0 ? static_cast<float>(std::log2(longest) / 2) : -1e30f;
}

}  // namespace detshare::soft::ptx
