// Copies and fills. Transport: ring.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"
#include "proto/wire/common.h"

namespace detshare::wire {

// Copies of a client's ordinary memory, which the client has already staged, can be `synchronous`
// (1, else 0): the client's call returns at once, and the client takes the copy for complete. Then
// later work of all streams on the device comes after the copy, also of streams that do not wait for
// the copy's stream.

// A linear copy. Overlapping ranges are undefined, as in CUDA. `signal` is given after the copy.
struct cuMemcpyAsync {
  Location destination;
  Location source;
  uint64_t bytes;
  StreamId stream;
  uint32_t synchronous;
  Signal signal;
};

struct PitchedLocation {
  Location location;     // of the first byte that is copied, with offsets added
  uint64_t row_pitch;    // bytes from row to row
  uint64_t slice_pitch;  // bytes from slice to slice
};

// A place in a level of an array. Arrays have no address and no pitches, so the fields of a
// PitchedLocation hold this place instead.
struct ArrayPosition {
  ArrayId array;
  uint32_t level;
  uint64_t x;  // bytes
  uint32_t y;
  uint32_t z;  // plane, layer or face
};
constexpr PitchedLocation InArray(const ArrayPosition& at) {
  return {{uint64_t{at.level} << 32 | at.array, kArray, 0}, at.x, uint64_t{at.z} << 32 | at.y};
}
// The inverse of InArray(), for a location whose space is kArray.
constexpr ArrayPosition PositionOf(const PitchedLocation& location) {
  return {static_cast<ArrayId>(location.location.address),
          static_cast<uint32_t>(location.location.address >> 32), location.row_pitch,
          static_cast<uint32_t>(location.slice_pitch),
          static_cast<uint32_t>(location.slice_pitch >> 32)};
}

// A copy of `depth` slices of `height` rows of `width` bytes.
struct cuMemcpy3DAsync_v2 {
  PitchedLocation destination;
  PitchedLocation source;
  uint64_t width;
  uint64_t height;
  uint64_t depth;
  StreamId stream;
  uint32_t synchronous;
  Signal signal;
};

// Every memset. Fills `height` rows, `pitch` bytes apart, of `width` elements of `element_bytes`
// (1, 2 or 4) bytes.
struct cuMemsetD2D32Async {
  uint64_t address;
  uint64_t pitch;
  uint64_t width;
  uint64_t height;
  uint32_t value;
  uint32_t element_bytes;
  StreamId stream;
  uint32_t reserved;
};

}  // namespace detshare::wire
