// Arithmetic on sizes from a client. No function here overflows.
#pragma once

#include <cstdint>

namespace detshare {

// Whether [begin, begin + bytes) lies in [0, size).
constexpr bool Within(uint64_t begin, uint64_t bytes, uint64_t size) {
  return begin <= size && bytes <= size - begin;
}

struct CopyShape {
  uint64_t width = 0;  // bytes
  uint64_t height = 1, depth = 1;
};

// Sets `*bytes` to the number of bytes from the first to the last byte of the shape. No side of the
// shape may be 0. Returns false when rows or slices overlap, or when the number does not fit in 64
// bits. A pitch that is not used (one row, one slice) may have any value.
constexpr bool PitchedExtent(const CopyShape& shape, uint64_t row_pitch, uint64_t slice_pitch,
                             uint64_t* bytes) {
  uint64_t rows = 0, slice = 0, slices = 0;
  if (shape.height > 1 && row_pitch < shape.width) return false;
  if (__builtin_mul_overflow(shape.height > 1 ? shape.height - 1 : 0, row_pitch, &rows))
    return false;
  if (__builtin_add_overflow(rows, shape.width, &slice)) return false;
  if (shape.depth > 1 && slice_pitch < slice) return false;
  if (__builtin_mul_overflow(shape.depth > 1 ? shape.depth - 1 : 0, slice_pitch, &slices))
    return false;
  return !__builtin_add_overflow(slices, slice, bytes);
}

}  // namespace detshare
