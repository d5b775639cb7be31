// Matrix products and the conversions of their fragments.
#include <immintrin.h>

#include <algorithm>

#include "server/backends/soft/ptx/matrix_math.h"

// Must follow all other headers.
#include "server/backends/soft/ptx/vector_half.h"

namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA {
namespace {

// A vector of doubles of this compilation. StoreFloats() converts eight floats.
#ifdef DETSHARE_AVX512_INTRINSICS
struct Doubles {
  static constexpr uint32_t kCount = 8;
  static Doubles Load(const double* from) { return {_mm512_loadu_pd(from)}; }
  static Doubles Fill(double v) { return {_mm512_set1_pd(v)}; }
  static Doubles MultiplyAdd(Doubles a, Doubles b, Doubles c) {
    return {_mm512_fmadd_pd(a.all, b.all, c.all)};
  }
  void Store(double* to) const { _mm512_storeu_pd(to, all); }
  static void StoreFloats(__m256 floats, double* to) {
    _mm512_storeu_pd(to, _mm512_cvtps_pd(floats));
  }
  __m512d all;
};
#elif defined(DETSHARE_AVX2_INTRINSICS)
struct Doubles {
  static constexpr uint32_t kCount = 4;
  static Doubles Load(const double* from) { return {_mm256_loadu_pd(from)}; }
  static Doubles Fill(double v) { return {_mm256_set1_pd(v)}; }
  static Doubles MultiplyAdd(Doubles a, Doubles b, Doubles c) {
    return {_mm256_fmadd_pd(a.all, b.all, c.all)};
  }
  void Store(double* to) const { _mm256_storeu_pd(to, all); }
  static void StoreFloats(__m256 floats, double* to) {
    _mm256_storeu_pd(to, _mm256_cvtps_pd(_mm256_castps256_ps128(floats)));
    _mm256_storeu_pd(to + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(floats, 1)));
  }
  __m256d all;
};
#else
struct Doubles {
  static constexpr uint32_t kCount = 4;
};
#endif

// Rows are multiplied in groups, so that the chains of several rows overlap in the CPU.
template <uint32_t kRows, uint32_t kColumns>
void MultiplyRows(const double* a, const double* b, double* d, uint32_t k) {
#ifdef DETSHARE_AVX2_INTRINSICS
  // g++ 12 makes shuffles of the loops below.
  constexpr uint32_t kVectors = kColumns / Doubles::kCount;
  Doubles sum[kRows][kVectors];
  for (uint32_t i = 0; i < kRows; ++i)
    for (uint32_t v = 0; v < kVectors; ++v)
      sum[i][v] = Doubles::Load(d + i * kColumns + v * Doubles::kCount);
  for (uint32_t at = 0; at < k; ++at) {
    Doubles row[kVectors];
    for (uint32_t v = 0; v < kVectors; ++v)
      row[v] = Doubles::Load(b + at * kColumns + v * Doubles::kCount);
    for (uint32_t i = 0; i < kRows; ++i) {
      const Doubles factor = Doubles::Fill(a[i * k + at]);
      for (uint32_t v = 0; v < kVectors; ++v)
        sum[i][v] = Doubles::MultiplyAdd(factor, row[v], sum[i][v]);
    }
  }
  for (uint32_t i = 0; i < kRows; ++i)
    for (uint32_t v = 0; v < kVectors; ++v) sum[i][v].Store(d + i * kColumns + v * Doubles::kCount);
#else
  double sum[kRows][kColumns];
  for (uint32_t i = 0; i < kRows; ++i)
    for (uint32_t j = 0; j < kColumns; ++j) sum[i][j] = d[i * kColumns + j];
  for (uint32_t at = 0; at < k; ++at) {
    const double* const row = b + at * kColumns;
    for (uint32_t i = 0; i < kRows; ++i) {
      const double factor = a[i * k + at];
      for (uint32_t j = 0; j < kColumns; ++j) sum[i][j] = __builtin_fma(factor, row[j], sum[i][j]);
    }
  }
  for (uint32_t i = 0; i < kRows; ++i)
    for (uint32_t j = 0; j < kColumns; ++j) d[i * kColumns + j] = sum[i][j];
#endif
}

// Returns whether there are rows for whole groups; otherwise it does nothing.
template <uint32_t kColumns>
bool MultiplyGroups(const double* a, const double* b, double* d, uint32_t m, uint32_t k) {
  constexpr uint32_t kChains = 8;
  constexpr uint32_t kRows = kChains * Doubles::kCount / kColumns;
  if (m % kRows != 0) return false;
  for (uint32_t i = 0; i < m; i += kRows)
    MultiplyRows<kRows, kColumns>(a + i * k, b, d + i * kColumns, k);
  return true;
}

void MultiplyAdd(const double* a, const double* b, double* d, uint32_t m, uint32_t n, uint32_t k) {
  if (n == 8 && MultiplyGroups<8>(a, b, d, m, k)) return;
  if (n == 16 && MultiplyGroups<16>(a, b, d, m, k)) return;
  if (n == 32 && MultiplyGroups<32>(a, b, d, m, k)) return;
  for (uint32_t i = 0; i < m; ++i) {
    for (uint32_t j = 0; j < n; ++j) {
      double sum = d[i * n + j];
      for (uint32_t at = 0; at < k; ++at) sum = __builtin_fma(a[i * k + at], b[at * n + j], sum);
      d[i * n + j] = sum;
    }
  }
}

template <class Lane, class F>
void DecodeLanes(const void* reg, double* values, F f) {
  const Lane* const lanes = static_cast<const Lane*>(reg);
  for (uint32_t i = 0; i < kLanes; ++i) values[i] = f(lanes[i]);
}

// Converts half `j` of each word.
void DecodeHalves(const void* reg, uint32_t j, double* values) {
#ifdef DETSHARE_AVX2_INTRINSICS
  const __m128i shift = _mm_cvtsi32_si128(16 * static_cast<int>(j));
  for (uint32_t i = 0; i < kLanes; i += 8) {
    const __m256i words = _mm256_loadu_si256(static_cast<const __m256i*>(reg) + i / 8);
    const __m256i halves =
        _mm256_and_si256(_mm256_srl_epi32(words, shift), _mm256_set1_epi32(0xffff));
    Doubles::StoreFloats(_mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(halves),
                                                          _mm256_extracti128_si256(halves, 1))),
                         values + i);
  }
#else
  DecodeLanes<uint32_t>(reg, values, [=](uint32_t v) { return FromF16(v >> 16 * j & 0xffff); });
#endif
}

// Converts the floats with the bits of `mask` of each word, shifted to the left.
void DecodeFloats(const void* reg, int shift, uint32_t mask, double* values) {
#ifdef DETSHARE_AVX2_INTRINSICS
  const __m128i left = _mm_cvtsi32_si128(shift);
  for (uint32_t i = 0; i < kLanes; i += 8) {
    const __m256i words = _mm256_loadu_si256(static_cast<const __m256i*>(reg) + i / 8);
    Doubles::StoreFloats(
        _mm256_castsi256_ps(_mm256_and_si256(_mm256_sll_epi32(words, left),
                                             _mm256_set1_epi32(static_cast<int>(mask)))),
        values + i);
  }
#else
  DecodeLanes<uint32_t>(reg, values,
                        [=](uint32_t v) { return std::bit_cast<float>(v << shift & mask); });
#endif
}

void Decode(Type type, const void* reg, uint32_t j, double* values) {
  switch (type) {
    case Type::kF64:
      return DecodeLanes<double>(reg, values, [](double v) { return v; });
    case Type::kF16:
      return DecodeHalves(reg, j, values);
    case Type::kBF16:
      return DecodeFloats(reg, j == 0 ? 16 : 0, ~0xffffu, values);
    case Type::kTF32:
      return DecodeFloats(reg, 0, ~0x1fffu, values);
    case Type::kF32:
      return DecodeFloats(reg, 0, ~0u, values);
    case Type::kS8:
      return DecodeLanes<uint32_t>(reg, values,
                                   [=](uint32_t v) { return static_cast<int8_t>(v >> 8 * j); });
    case Type::kU8:
      return DecodeLanes<uint32_t>(reg, values,
                                   [=](uint32_t v) { return static_cast<uint8_t>(v >> 8 * j); });
    case Type::kS4:
      return DecodeLanes<uint32_t>(
          reg, values, [=](uint32_t v) { return static_cast<int32_t>(v << (28 - 4 * j)) >> 28; });
    case Type::kU4:
      return DecodeLanes<uint32_t>(reg, values, [=](uint32_t v) { return v >> 4 * j & 0xf; });
    case Type::kE5M2:  // the upper half of an f16
      return DecodeLanes<uint32_t>(reg, values,
                                   [=](uint32_t v) { return FromF16((v >> 8 * j & 0xff) << 8); });
    case Type::kE4M3:  // the exponent's bias is 8 less than that of an f16
      return DecodeLanes<uint32_t>(reg, values, [=](uint32_t v) {
        const uint32_t code = v >> 8 * j & 0xff;
        const bool is_number = (code & 0x7f) != 0x7f;
        const uint32_t half = (code & 0x80) << 8 | (is_number ? (code & 0x7f) << 7 : 0x7e00);
        return 256.0f * FromF16(half);
      });
    default:
      return DecodeLanes<int32_t>(reg, values, [](int32_t v) { return v; });
  }
}

template <class Lane, class F>
void EncodeLanes(const double* values, void* reg, F f) {
  Lane* const lanes = static_cast<Lane*>(reg);
  for (uint32_t i = 0; i < kLanes; ++i) lanes[i] = f(values[i], lanes[i]);
}

void Encode(Type type, const double* values, uint32_t j, bool saturate, void* reg) {
  switch (type) {
    case Type::kF64:
      return EncodeLanes<double>(values, reg, [](double v, double) { return v; });
    case Type::kF16:
      return EncodeLanes<uint32_t>(values, reg, [=](double v, uint32_t word) {
        return (word & 0xffff0000u >> 16 * j) | ToF16(v) << 16 * j;
      });
    case Type::kS32:
      return EncodeLanes<uint32_t>(values, reg, [=](double v, uint32_t) {
        if (saturate) v = std::clamp(v, -2147483648.0, 2147483647.0);
        return static_cast<uint32_t>(static_cast<int64_t>(v));
      });
    default:
      return EncodeLanes<uint32_t>(values, reg, [](double v, uint32_t) {
        const float f = static_cast<float>(v);
        return f != f ? 0x7fffffffu : std::bit_cast<uint32_t>(f);
      });
  }
}

}  // namespace

const MatrixMath kMatrixMath = {MultiplyAdd, Decode, Encode};

}  // namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA
