// Conversions of 16-bit floats, as code that the compiler vectorises. It takes the place of
// vector_lanes.h in a file of vector operations.
#pragma once

#include <algorithm>

// Must follow all other headers.
#include "server/backends/soft/ptx/vector_lanes.h"

namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA {
namespace {

// Makes no subnormal float on the way: CPUs take long for those.
inline float FromF16(uint32_t half) {
  const uint32_t magnitude = half & 0x7fff;
  const uint32_t rebias = magnitude >= 0x7c00 ? 224u << 23 : 112u << 23;
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
  const uint32_t bits =
      magnitude < 0x400 ? std::bit_cast<uint32_t>(subnormal) : (magnitude << 13) + rebias;
  return std::bit_cast<float>(bits | (half & 0x8000) << 16);
}
inline float FromBF16(uint32_t half) { return std::bit_cast<float>(half << 16); }

// Rounds the magnitude of a value to nearest, to a format with `kMantissa` bits of mantissa and
// normal numbers from 2^`kLeast` on. The sum with a power of two whose last bit is that of the
// result rounds; subnormal numbers all have the same last bit.
template <int kMantissa, int kLeast>
inline double RoundMagnitude(double value) {
  constexpr int64_t kBias = 1023;
  const uint64_t bits = std::bit_cast<uint64_t>(value) << 1 >> 1;
  const uint64_t exponent = static_cast<uint64_t>(
      std::clamp<int64_t>(static_cast<int64_t>(bits >> 52), kBias + kLeast, kBias + 128));
  const double round = std::bit_cast<double>((exponent + 52 - kMantissa) << 52);
  return (std::bit_cast<double>(bits) + round) - round;
}

inline uint32_t SignOfHalf(double value) {
  return static_cast<uint32_t>(std::bit_cast<uint64_t>(value) >> 48) & 0x8000;
}

inline uint32_t ToF16(double value) {
  const double rounded = RoundMagnitude<10, -14>(value);
  const uint32_t small =
      static_cast<uint32_t>(static_cast<int32_t>(std::min(rounded, 0x1p-13) * 0x1p24));
  const uint32_t normal =
      (std::bit_cast<uint32_t>(static_cast<float>(rounded)) - (112u << 23)) >> 13;
  const uint32_t finite = rounded < 0x1p-14 ? small : normal;
  const uint32_t number = SignOfHalf(value) | (rounded < 65536.0 ? finite : 0x7c00);
  return value != value ? 0x7fff : number;
}

inline uint32_t ToBF16(double value) {
  const float rounded = static_cast<float>(RoundMagnitude<7, -126>(value));
  const uint32_t number = SignOfHalf(value) | std::bit_cast<uint32_t>(rounded) >> 16;
  return value != value ? 0x7fff : number;
}

}  // namespace
}  // namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA
