// Arrays as the shim holds them: their handles, what is known of them, places in them.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "client_shim/base/handle_table.h"
#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/copy.h"

namespace detshare::shim {

// A CUarray: an array, or a level of a mipmapped array. Or a CUmipmappedArray.
struct ArrayObject {
  uint64_t handle = 0;
  uint32_t index = 0;
  ArrayId id = 0;
  uint32_t level = 0;   // of a mipmapped array's level
  uint32_t levels = 0;  // of a mipmapped array
  bool is_level = false;
  Context* context = nullptr;
  ContextId context_id = 0;
  uint16_t device = 0;
  CUDA_ARRAY3D_DESCRIPTOR description{};  // of a level: its own sides

  std::mutex mutex;                     // guards the rest, of mipmapped arrays
  std::vector<uint64_t> level_handles;  // 0: not asked for yet

  bool layered() const {
    return (description.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  }
  // What copies see: `slices` layers or planes of `rows` rows.
  uint64_t texel_bytes() const;
  uint64_t row_bytes() const { return description.Width * texel_bytes(); }
  uint64_t rows() const { return description.Height == 0 ? 1 : description.Height; }
  uint64_t slices() const { return description.Depth == 0 ? 1 : description.Depth; }
};

// Bytes of a channel; 0 for formats that arrays cannot have here.
uint64_t ChannelBytes(CUarray_format format);

// Null when there is none, or when its context is over.
ArrayObject* FindArray(CUarray handle);
ArrayObject* FindMipmappedArray(CUmipmappedArray handle);

CUresult CreateArray(const CUDA_ARRAY3D_DESCRIPTOR& description, CUarray* handle);
CUresult CreateMipmappedArray(const CUDA_ARRAY3D_DESCRIPTOR& description, uint32_t levels,
                              CUmipmappedArray* handle);
CUresult GetLevel(CUmipmappedArray handle, uint32_t level, CUarray* array);
// Waits until the work before it is complete. Levels end with their mipmapped array.
CUresult DestroyArray(CUarray handle);
CUresult DestroyMipmappedArray(CUmipmappedArray handle);

// The place of a box in an array of `device`: CUDA_ERROR_INVALID_VALUE unless it is made of whole
// texels in it.
CUresult FindArrayPlace(CUarray handle, uint64_t x_bytes, uint64_t y, uint64_t z, uint64_t width,
                        uint64_t height, uint64_t depth, uint16_t device,
                        wire::ArrayPosition* position);

}  // namespace detshare::shim
