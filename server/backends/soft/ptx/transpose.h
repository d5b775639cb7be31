// Transposes small matrices.
#pragma once

#include <emmintrin.h>

#include <cstdint>

namespace detshare::soft::ptx {

namespace transpose_internal {

// The elements of two vectors, from each in turn: those of the lower or of the upper halves.
template <class T>
__m128i Interleave(__m128i a, __m128i b, bool upper) {
  if constexpr (sizeof(T) == 1) return upper ? _mm_unpackhi_epi8(a, b) : _mm_unpacklo_epi8(a, b);
  if constexpr (sizeof(T) == 2) return upper ? _mm_unpackhi_epi16(a, b) : _mm_unpacklo_epi16(a, b);
  if constexpr (sizeof(T) == 4) return upper ? _mm_unpackhi_epi32(a, b) : _mm_unpacklo_epi32(a, b);
  if constexpr (sizeof(T) == 8) return upper ? _mm_unpackhi_epi64(a, b) : _mm_unpacklo_epi64(a, b);
}

// Transposes a square whose rows are vectors. An element's place is a row and a place in the row, of
// as many bits each. Interleaving the first half of the rows with the second rotates all these bits by
// one, so that after as many rounds as a row number has bits, both have changed places.
template <class T>
void TransposeSquare(const T* from, uint32_t from_stride, T* to, uint32_t to_stride) {
  constexpr uint32_t kSide = sizeof(__m128i) / sizeof(T);
  __m128i rows[kSide], next[kSide];
  for (uint32_t i = 0; i < kSide; ++i)
    rows[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * from_stride));
  for (uint32_t round = 1; round < kSide; round *= 2) {
    for (uint32_t i = 0; i < kSide; ++i)
      next[i] = Interleave<T>(rows[i / 2], rows[i / 2 + kSide / 2], i % 2 != 0);
    for (uint32_t i = 0; i < kSide; ++i) rows[i] = next[i];
  }
  for (uint32_t i = 0; i < kSide; ++i)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * to_stride), rows[i]);
}

}  // namespace transpose_internal

// Writes the transpose of a row-major matrix. `to` does not overlap `from`. T: an unsigned integer.
template <class T>
void Transpose(const T* from, uint32_t rows, uint32_t columns, T* to) {
  constexpr uint32_t kSide = sizeof(__m128i) / sizeof(T);
  if (rows % kSide == 0 && columns % kSide == 0) {
    for (uint32_t i = 0; i < rows; i += kSide)
      for (uint32_t j = 0; j < columns; j += kSide)
        transpose_internal::TransposeSquare(from + i * columns + j, columns, to + j * rows + i,
                                            rows);
    return;
  }
  for (uint32_t i = 0; i < rows; ++i)
    for (uint32_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
}

}  // namespace detshare::soft::ptx
