// Conversions in all rounding modes: between float, double and integers (with saturation), and from
// and to half and bfloat16.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>
#include <string>

#include "check.h"

constexpr int kCount = 4096;
const int kRoundings[4] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};

#define ALL_MODES(function, value) \
  function##_rn(value), function##_rz(value), function##_ru(value), function##_rd(value)

struct Sink {
  std::uint64_t* next;
  template <typename T>
  __device__ void operator()(T rn, T rz, T ru, T rd) {
    for (T value : {rn, rz, ru, rd}) {
      *next = static_cast<std::uint64_t>(value);
      next += kCount;
    }
  }
};

__device__ std::uint64_t Bits(float value) { return __float_as_uint(value); }
__device__ std::uint64_t Bits(double value) { return __double_as_longlong(value); }

constexpr int kGroups = 17;

__global__ void Convert(const float* floats, const double* doubles, const long long* integers,
                        std::uint64_t* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= kCount) return;
  float f = floats[i];
  double d = doubles[i];
  long long n = integers[i];
  Sink put{out + i};
  put(ALL_MODES(__float2int, f));
  put(ALL_MODES(__float2uint, f));
  put(ALL_MODES(__float2ll, f));
  put(ALL_MODES(__float2ull, f));
  put(ALL_MODES(__double2int, d));
  put(ALL_MODES(__double2uint, d));
  put(ALL_MODES(__double2ll, d));
  put(ALL_MODES(__double2ull, d));
#define BITS_OF_ALL(function, value)                                                  \
  Bits(function##_rn(value)), Bits(function##_rz(value)), Bits(function##_ru(value)), \
      Bits(function##_rd(value))
  put(BITS_OF_ALL(__double2float, d));
  put(BITS_OF_ALL(__int2float, static_cast<int>(n)));
  put(BITS_OF_ALL(__uint2float, static_cast<unsigned>(n)));
  put(BITS_OF_ALL(__ll2float, n));
  put(BITS_OF_ALL(__ull2float, static_cast<unsigned long long>(n)));
  put(BITS_OF_ALL(__ll2double, n));
  put(BITS_OF_ALL(__ull2double, static_cast<unsigned long long>(n)));
  put(Bits(__int2double_rn(static_cast<int>(n))), Bits(__uint2double_rn(static_cast<unsigned>(n))),
      Bits(static_cast<double>(f)), static_cast<std::uint64_t>(static_cast<unsigned char>(n)));
  // C++ casts round to nearest between floating-point types, and towards zero to integers.
  put(Bits(static_cast<float>(d)), Bits(static_cast<float>(n)),
      static_cast<std::uint64_t>(static_cast<int>(f)),
      static_cast<std::uint64_t>(static_cast<long long>(d)));
}

// The nearest whole number in the current rounding mode, clamped to the target's range.
template <typename Integer>
std::uint64_t ToInteger(double value) {
  // Volatile, because the compiler ignores rounding modes and must not move this.
  volatile double input = value;
  volatile double rounded = std::nearbyint(input);
  const double low = static_cast<double>(std::numeric_limits<Integer>::lowest());
  // Two to the number of value bits: the first value that does not fit.
  const double high = std::ldexp(1.0, std::numeric_limits<Integer>::digits);
  if (rounded <= low) return static_cast<std::uint64_t>(std::numeric_limits<Integer>::lowest());
  if (rounded >= high) return static_cast<std::uint64_t>(std::numeric_limits<Integer>::max());
  return static_cast<std::uint64_t>(static_cast<Integer>(rounded));
}

template <typename T>
std::uint64_t HostBits(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <typename To, typename From>
__attribute__((noinline)) std::uint64_t ToFloating(From value) {
  volatile From from = value;
  volatile To to = static_cast<To>(from);
  return HostBits(static_cast<To>(to));
}

void ExpectedGroup(int group, float f, double d, long long n, std::uint64_t* want) {
  auto in_all_modes = [&](auto convert) {
    for (int mode = 0; mode < 4; ++mode) {
      std::fesetround(kRoundings[mode]);
      want[mode * kCount] = convert();
    }
    std::fesetround(FE_TONEAREST);
  };
  switch (group) {
    case 0:
      return in_all_modes([&] { return ToInteger<std::int32_t>(f); });
    case 1:
      return in_all_modes([&] { return ToInteger<std::uint32_t>(f); });
    case 2:
      return in_all_modes([&] { return ToInteger<std::int64_t>(f); });
    case 3:
      return in_all_modes([&] { return ToInteger<std::uint64_t>(f); });
    case 4:
      return in_all_modes([&] { return ToInteger<std::int32_t>(d); });
    case 5:
      return in_all_modes([&] { return ToInteger<std::uint32_t>(d); });
    case 6:
      return in_all_modes([&] { return ToInteger<std::int64_t>(d); });
    case 7:
      return in_all_modes([&] { return ToInteger<std::uint64_t>(d); });
    case 8:
      return in_all_modes([&] { return ToFloating<float>(d); });
    case 9:
      return in_all_modes([&] { return ToFloating<float>(static_cast<int>(n)); });
    // An unsigned 32-bit number fits into a long long, which the host converts in one correctly
    // rounded step.
    case 10:
      return in_all_modes(
          [&] { return ToFloating<float>(static_cast<long long>(static_cast<unsigned>(n))); });
    case 11:
      return in_all_modes([&] { return ToFloating<float>(n); });
    case 13:
      return in_all_modes([&] { return ToFloating<double>(n); });
    // The x87 unit holds all 64 bits, so only the last step rounds.
    case 12:
      return in_all_modes([&] {
        return ToFloating<float>(static_cast<long double>(static_cast<unsigned long long>(n)));
      });
    case 14:
      return in_all_modes([&] {
        return ToFloating<double>(static_cast<long double>(static_cast<unsigned long long>(n)));
      });
    case 15:
      want[0] = HostBits(static_cast<double>(static_cast<int>(n)));
      want[kCount] = HostBits(static_cast<double>(static_cast<unsigned>(n)));
      want[2 * kCount] = HostBits(static_cast<double>(f));
      want[3 * kCount] = static_cast<unsigned char>(n);
      return;
    default:
      want[0] = HostBits(static_cast<float>(d));
      want[kCount] = HostBits(static_cast<float>(n));
      std::fesetround(FE_TOWARDZERO);
      want[2 * kCount] = ToInteger<std::int32_t>(f);
      want[3 * kCount] = ToInteger<std::int64_t>(d);
      std::fesetround(FE_TONEAREST);
  }
}

// A format of sixteen bits: the number of bits of the fraction, the smallest exponent of a normal
// number, and the largest finite value.
struct Format {
  int fraction, lowest_exponent;
  double largest;
};
const Format kHalf = {10, -14, 65504.0};
const Format kBfloat16 = {7, -126, 3.3895313892515355e38};

// Rounds `value` to the format in the host's rounding mode. All other arithmetic in it is exact.
std::uint16_t Round(const Format& format, float value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  exponent = std::max(exponent - 1, format.lowest_exponent);
  volatile double units =
      std::ldexp(static_cast<double>(std::fabs(value)), format.fraction - exponent);
  bool negative = std::signbit(value);
  // Directed modes depend on the sign.
  volatile double signed_units = negative ? -units : units;
  double rounded = std::fabs(std::nearbyint(signed_units));
  double magnitude = std::ldexp(rounded, exponent - format.fraction);
  const int exponent_bits = 15 - format.fraction;
  const std::uint16_t infinity =
      static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << format.fraction);
  std::uint16_t bits;
  if (std::isinf(value)) {
    bits = infinity;
  } else if (magnitude > format.largest) {
    int mode = std::fegetround();
    bool away = mode == FE_TONEAREST || (mode == FE_UPWARD && !negative) ||
                (mode == FE_DOWNWARD && negative);
    bits = away ? infinity : static_cast<std::uint16_t>(infinity - 1);
  } else if (magnitude == 0.0) {
    bits = 0;
  } else {
    int result_exponent = 0;
    std::frexp(magnitude, &result_exponent);
    result_exponent = std::max(result_exponent - 1, format.lowest_exponent);
    auto scaled =
        static_cast<std::uint32_t>(std::ldexp(magnitude, format.fraction - result_exponent));
    // The hidden bit of a normal number carries into the exponent field. A subnormal number has no
    // hidden bit.
    bits = static_cast<std::uint16_t>(
        scaled + ((result_exponent - format.lowest_exponent) << format.fraction));
  }
  return static_cast<std::uint16_t>(bits | (negative ? 0x8000 : 0));
}

__global__ void ToSixteen(const float* in, unsigned short* half, unsigned short* brain) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= kCount) return;
  float f = in[i];
  half[i] = __half_as_ushort(__float2half_rn(f));
  half[kCount + i] = __half_as_ushort(__float2half_rz(f));
  half[2 * kCount + i] = __half_as_ushort(__float2half_ru(f));
  half[3 * kCount + i] = __half_as_ushort(__float2half_rd(f));
  brain[i] = __bfloat16_as_ushort(__float2bfloat16_rn(f));
  brain[kCount + i] = __bfloat16_as_ushort(__float2bfloat16_rz(f));
  brain[2 * kCount + i] = __bfloat16_as_ushort(__float2bfloat16_ru(f));
  brain[3 * kCount + i] = __bfloat16_as_ushort(__float2bfloat16_rd(f));
}

__global__ void FromSixteen(float* half, float* brain) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  half[i] = __half2float(__ushort_as_half(static_cast<unsigned short>(i)));
  brain[i] = __bfloat162float(__ushort_as_bfloat16(static_cast<unsigned short>(i)));
}

float ValueOf(const Format& format, int bits) {
  int exponent = (bits & 0x7fff) >> format.fraction, fraction = bits & ((1 << format.fraction) - 1);
  float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == (1 << (15 - format.fraction)) - 1) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent != 0) fraction += 1 << format.fraction;
  return sign * std::ldexp(static_cast<float>(fraction),
                           std::max(exponent - 1, 0) + format.lowest_exponent - format.fraction);
}

int main() {
  check::Random random(12);
  std::vector<float> floats(kCount), sixteen(kCount);
  std::vector<double> doubles(kCount);
  std::vector<long long> integers(kCount);
  for (int i = 0; i < kCount; ++i) {
    floats[i] = std::ldexp(random.NextFloat(), static_cast<int>(random.Next32() % 70));
    doubles[i] = std::ldexp(static_cast<double>(random.Next64() >> 11),
                            static_cast<int>(random.Next32() % 80) - 60);
    if (i % 2 == 0) doubles[i] = -doubles[i];
    if (i % 8 == 0)
      floats[i] = static_cast<float>(static_cast<int>(random.Next32() % 2001) - 1000) * 0.5f;
    if (i % 8 == 1) doubles[i] = floats[i] * 0.25;
    if (i % 8 == 2)
      doubles[i] = std::ldexp(doubles[i], static_cast<int>(random.Next32() % 400) - 200);
    integers[i] = static_cast<long long>(random.Next64() >> random.Next32() % 64);
    if (i % 3 == 0)
      integers[i] = static_cast<long long>(0 - static_cast<std::uint64_t>(integers[i]));
    sixteen[i] = std::ldexp(random.NextFloat(), static_cast<int>(random.Next32() % 48) - 28);
    if (i % 7 == 0)
      sixteen[i] = std::ldexp(random.NextFloat(), static_cast<int>(random.Next32() % 268) - 140);
  }
  integers[0] = 0;
  floats[0] = doubles[0] = sixteen[0] = 0.0f;
  floats[1] = sixteen[1] = -0.0f;
  sixteen[2] = INFINITY;
  sixteen[3] = 65519.996f;
  sixteen[4] = 65520.0f;
  sixteen[5] = -3.4028235e38f;

  float* device_floats = check::Upload(floats);
  double* device_doubles = check::Upload(doubles);
  long long* device_integers = check::Upload(integers);
  std::uint64_t* out = check::Zeroed<std::uint64_t>(kGroups * 4 * kCount);
  Convert<<<kCount / 64, 64>>>(device_floats, device_doubles, device_integers, out);
  CHECK(cudaGetLastError());
  std::vector<std::uint64_t> got = check::Download(out, kGroups * 4 * kCount), want(4 * kCount);
  for (int group = 0; group < kGroups; ++group) {
    for (int i = 0; i < kCount; ++i)
      ExpectedGroup(group, floats[i], doubles[i], integers[i], &want[i]);
    std::string what = "conversions " + std::to_string(group);
    check::Compare(what.c_str(), &got[group * 4 * kCount], want.data(), want.size());
  }

  float* device_sixteen = check::Upload(sixteen);
  unsigned short* half = check::Zeroed<unsigned short>(4 * kCount);
  unsigned short* brain = check::Zeroed<unsigned short>(4 * kCount);
  ToSixteen<<<kCount / 64, 64>>>(device_sixteen, half, brain);
  CHECK(cudaGetLastError());
  std::vector<unsigned short> want_half(4 * kCount), want_brain(4 * kCount);
  for (int mode = 0; mode < 4; ++mode) {
    std::fesetround(kRoundings[mode]);
    for (int i = 0; i < kCount; ++i) {
      want_half[mode * kCount + i] = Round(kHalf, sixteen[i]);
      want_brain[mode * kCount + i] = Round(kBfloat16, sixteen[i]);
    }
  }
  std::fesetround(FE_TONEAREST);
  check::Compare("to half", check::Download(half, 4 * kCount), want_half);
  check::Compare("to bfloat16", check::Download(brain, 4 * kCount), want_brain);

  constexpr int kAll = 1 << 16;
  float* all = check::Zeroed<float>(2 * kAll);
  FromSixteen<<<kAll / 256, 256>>>(all, all + kAll);
  CHECK(cudaGetLastError());
  std::vector<float> got_all = check::Download(all, 2 * kAll), want_all(2 * kAll);
  for (int bits = 0; bits < kAll; ++bits) {
    want_all[bits] = ValueOf(kHalf, bits);
    want_all[kAll + bits] = ValueOf(kBfloat16, bits);
  }
  for (auto* values : {&got_all, &want_all}) {
    for (float& value : *values) value = std::isnan(value) ? NAN : value;
  }
  check::Compare("from 16 bits", got_all, want_all);
  for (void* memory : {static_cast<void*>(device_floats), static_cast<void*>(device_doubles),
                       static_cast<void*>(device_integers), static_cast<void*>(out),
                       static_cast<void*>(device_sixteen), static_cast<void*>(half),
                       static_cast<void*>(brain), static_cast<void*>(all)}) {
    CHECK(cudaFree(memory));
  }
  return check::Ok();
}
