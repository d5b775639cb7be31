// Conversions between half-precision formats and float, with exactly the bits of the hardware.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace detshare::soft::ptx {

// A binary floating-point format of up to 16 bits.
struct SmallFormat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
  uint32_t nan;  // the result of conversions of NaN
};
constexpr SmallFormat kF16Format{5, 10, true, 0x7fff};
constexpr SmallFormat kBF16Format{8, 7, true, 0x7fff};
constexpr SmallFormat kE5M2Format{5, 2, true, 0x7f};
constexpr SmallFormat kE4M3Format{4, 3, false, 0x7f};

enum class SmallRounding : uint8_t { kNearest, kZero, kDown, kUp, kAway };

// The exact value as a double.
inline double SmallToDouble(const SmallFormat& f, uint32_t bits) {
  const uint32_t mantissa_mask = (1u << f.mantissa_bits) - 1;
  const uint32_t exponent_mask = (1u << f.exponent_bits) - 1;
  const uint32_t mantissa = bits & mantissa_mask;
  const uint32_t exponent = bits >> f.mantissa_bits & exponent_mask;
  const bool negative = (bits >> (f.mantissa_bits + f.exponent_bits) & 1) != 0;
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  double value;
  if (exponent == exponent_mask && (f.has_infinity || mantissa == mantissa_mask)) {
    value = mantissa == 0 ? HUGE_VAL : std::bit_cast<double>(uint64_t{0x7ff8000000000000});
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<double>(mantissa), 1 - bias - f.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<double>(mantissa | (1u << f.mantissa_bits)),
                       static_cast<int>(exponent) - bias - f.mantissa_bits);
  }
  return negative ? -value : value;
}

// Converts with one rounding. With `finite`, and always for formats without infinity, values beyond
// the largest become the largest.
inline uint32_t DoubleToSmall(const SmallFormat& f, double value, SmallRounding rounding,
                              bool finite) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const bool negative = bits >> 63 != 0;
  const uint32_t sign = negative ? 1u << (f.mantissa_bits + f.exponent_bits) : 0;
  if (value != value) return f.nan;
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const uint32_t exponent_mask = (1u << f.exponent_bits) - 1;
  const uint32_t infinity = exponent_mask << f.mantissa_bits;
  // In E4M3 the top exponent holds numbers, except for one code.
  const uint32_t largest = f.has_infinity ? infinity - 1 : infinity + (1u << f.mantissa_bits) - 2;
  const double magnitude = std::fabs(value);
  if (magnitude == HUGE_VAL) return sign | (finite || !f.has_infinity ? largest : infinity);
  if (magnitude == 0) return sign;
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - bias) exponent = 1 - bias;
  // In units of the last place: an integer part of at most mantissa_bits + 1 bits and an exact
  // fraction.
  const double scaled = std::ldexp(magnitude, f.mantissa_bits - exponent);
  double whole = std::floor(scaled);
  const double fraction = scaled - whole;
  bool up = false;
  switch (rounding) {
    case SmallRounding::kNearest:
      up = fraction > 0.5 || (fraction == 0.5 && std::fmod(whole, 2.0) != 0);
      break;
    case SmallRounding::kAway:
      up = fraction >= 0.5;
      break;
    case SmallRounding::kZero:
      break;
    case SmallRounding::kDown:
      up = negative && fraction != 0;
      break;
    case SmallRounding::kUp:
      up = !negative && fraction != 0;
      break;
  }
  if (up) whole += 1;
  // The sum of mantissa and exponent field carries into the exponent as needed.
  const uint64_t units = static_cast<uint64_t>(whole);
  uint64_t code = units;
  if (exponent > 1 - bias || units >= (1u << f.mantissa_bits)) {
    code = (static_cast<uint64_t>(exponent + bias - 1) << f.mantissa_bits) + units;
  }
  if (code > largest) {
    const bool toward_zero = rounding == SmallRounding::kZero ||
                             (rounding == SmallRounding::kDown && !negative) ||
                             (rounding == SmallRounding::kUp && negative);
    return sign | (finite || !f.has_infinity || toward_zero ? largest : infinity);
  }
  return sign | static_cast<uint32_t>(code);
}

inline float HalfToFloat(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t exponent = h >> 10 & 0x1f;
  const uint32_t mantissa = h & 0x3ff;
  if (exponent == 0x1f)
    return std::bit_cast<float>(sign | 0x7f800000u |
                                (mantissa != 0 ? 0x400000u | mantissa << 13 : 0));
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float value = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}
// To nearest even.
inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and more
  if (magnitude < 0x38800000u) {
    // A subnormal result: the addition of 0.5 makes the FPU round at the last place of the result.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f000000u));
  }
  magnitude += 0xc8000fffu + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | magnitude >> 13);
}
inline float Bf16ToFloat(uint16_t h) {
  return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}
inline uint16_t FloatToBf16(float value) {
  if (value != value) return 0x7fff;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// Returns a * b + c rounded to odd, for a, b and c from formats of at most 16 bits. A second
// rounding of the result to such a format is then correct.
inline double FmaRoundedToOdd(double a, double b, double c) {
  const double product = a * b;  // exact
  const double sum = product + c;
  if (!std::isfinite(sum)) return sum;
  const double t = sum - product;
  const double error = (product - (sum - t)) + (c - t);
  if (error == 0) return sum;
  const uint64_t bits = std::bit_cast<uint64_t>(sum);
  if ((bits & 1) != 0) return sum;
  // The sum is even and inexact, so its neighbour towards the exact value is odd.
  const bool up = (error > 0) == (sum > 0);
  return std::bit_cast<double>(up ? bits + 1 : bits - 1);
}

}  // namespace detshare::soft::ptx
