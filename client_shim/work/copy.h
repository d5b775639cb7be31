// Copies between any two kinds of memory. Any thread.
#pragma once

#include <cstdint>

#include "client_shim/memory/pointer_map.h"
#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/copy.h"

namespace detshare::shim {

// The kind of memory that a call gives for one side of a copy.
enum class Side : uint8_t {
  kAny,     // unified addressing: the shim looks the address up
  kHost,    // memory that the CPU reaches
  kDevice,  // memory that the GPU reaches
};

inline uint64_t AddressOf(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// One side of a copy after the look-up.
struct Place {
  uint64_t gpu = 0;   // the address for the GPU; 0: the GPU cannot reach the memory
  uint64_t host = 0;  // the address for the CPU; 0: the CPU cannot reach the memory
  bool writable = true;
  uint64_t context = 0;  // handle of the context that the device memory belongs to
  bool pageable() const { return gpu == 0; }
};

// Looks an address up for a copy that `device` does. CUDA_ERROR_INVALID_VALUE: the memory is not of
// that kind, or one allocation does not hold all `bytes`.
CUresult FindPlace(uint64_t address, uint64_t bytes, Side side, uint16_t device, Place* place);

// The place that a memset of `height` rows of `width` elements writes. CUDA_ERROR_INVALID_VALUE as
// above, and for rows and elements that do not fit.
CUresult FindFillPlace(uint64_t address, uint64_t pitch, uint32_t element, uint64_t width,
                       uint64_t height, uint16_t device, Place* place);

// Copies on a stream. With `synchronous` the call has the meaning of cuMemcpy and its variants: it
// returns when the source may be reused. If the copy writes host memory or reads pinned memory, it
// returns when the copy is complete. A copy from ordinary host memory returns when the bytes are
// staged; the client's later work on the device comes after it. A copy to ordinary host memory always returns when the bytes have arrived.
CUresult CopyLinear(Stream& stream, const Place& to, const Place& from, uint64_t bytes,
                    bool synchronous);

// One side of a copy of rows and slices. Pitches are in bytes.
struct PitchedPlace {
  Place place;  // the first byte
  uint64_t row_pitch = 0;
  uint64_t slice_pitch = 0;
  wire::ArrayPosition array{};  // an array; replaces all fields above
  CUarray array_handle = nullptr;

  bool in_array() const { return array.array != 0; }
  bool pageable() const { return !in_array() && place.pageable(); }
  bool on_host() const { return !in_array() && place.host != 0; }
  // The location for the device, moved by `x` bytes, `y` rows and `z` slices.
  wire::PitchedLocation Location(uint64_t x = 0, uint64_t y = 0, uint64_t z = 0) const;
};
// Looks up both sides of a copy that has at least one byte.
CUresult ResolveCopy(const CUDA_MEMCPY3D& copy, uint16_t device, PitchedPlace* to,
                     PitchedPlace* from);
// Copies `depth` slices of `height` rows of `width` bytes on a stream. `synchronous` as for
// CopyLinear.
CUresult CopyPitched(Stream& stream, const PitchedPlace& to, const PitchedPlace& from,
                     uint64_t width, uint64_t height, uint64_t depth, bool synchronous);

// Waits until a signal of the stream has arrived. Returns the session's sticky error.
CUresult AwaitSignal(Stream& stream, FenceIndex fence, uint64_t value);

}  // namespace detshare::shim
