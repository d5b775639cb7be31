// Copies between any two kinds of memory.
#pragma once

#include <cstdint>

#include "client_shim/memory/pointer_map.h"
#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/copy.h"

namespace detshare::shim {

// What a caller says about one side of a copy.
enum class Side : uint8_t {
  kAny,     // unified addressing: look it up
  kHost,    // memory that the CPU reaches
  kDevice,  // memory that the GPU reaches
};

// One side of a copy, looked up.
struct Place {
  uint64_t gpu = 0;   // its address for the GPU, 0 when the GPU cannot reach it
  uint64_t host = 0;  // for the CPU, 0 when the CPU cannot reach it
  bool writable = true;
  uint64_t context = 0;  // handle of the context that device memory belongs to
  bool pageable() const { return gpu == 0; }
};

// CUDA_ERROR_INVALID_VALUE: not memory of that kind, or not `bytes` of one allocation.
// `device` does the copy.
CUresult FindPlace(uint64_t address, uint64_t bytes, Side side, uint16_t device, Place* place);

// Where a memset of `height` rows of `width` elements writes. CUDA_ERROR_INVALID_VALUE as above,
// and for rows and elements that do not fit.
CUresult FindFillPlace(uint64_t address, uint64_t pitch, uint32_t element, uint64_t width,
                       uint64_t height, uint16_t device, Place* place);

// Copies on a stream. With `synchronous` the call has the meaning of cuMemcpy and its variants: it
// returns when the source may be reused and, where host memory is written or pinned memory is read,
// when the copy is complete. From ordinary host memory the call returns when the bytes are staged;
// into it, always when they have arrived.
CUresult CopyLinear(Stream& stream, const Place& to, const Place& from, uint64_t bytes,
                    bool synchronous);

struct PitchedPlace {
  Place place;  // of the first byte
  uint64_t row_pitch = 0;
  uint64_t slice_pitch = 0;
  wire::ArrayPosition array{};  // of an array: instead of all of the above
  CUarray array_handle = nullptr;

  bool in_array() const { return array.array != 0; }
  bool pageable() const { return !in_array() && place.pageable(); }
  bool on_host() const { return !in_array() && place.host != 0; }
  // For the device: `x` bytes, `y` rows and `z` slices on.
  wire::PitchedLocation Location(uint64_t x = 0, uint64_t y = 0, uint64_t z = 0) const;
};
// Both sides of a copy as the program describes it, of at least one byte.
CUresult ResolveCopy(const CUDA_MEMCPY3D& copy, uint16_t device, PitchedPlace* to,
                     PitchedPlace* from);
CUresult CopyPitched(Stream& stream, const PitchedPlace& to, const PitchedPlace& from,
                     uint64_t width, uint64_t height, uint64_t depth, bool synchronous);

// Waits until a signal of the stream has arrived. The session's sticky error.
CUresult AwaitSignal(Stream& stream, FenceIndex fence, uint64_t value);

}  // namespace detshare::shim
