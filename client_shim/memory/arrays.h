// The shim's arrays: finds them by handle, makes and destroys them, and describes places in them.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "client_shim/base/handle_table.h"
#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/copy.h"

namespace detshare::shim {

// A CUmipmappedArray, or a CUarray: an array, or a level of a mipmapped array.
struct ArrayObject {
  uint64_t handle = 0;
  uint32_t index = 0;
  ArrayId id = 0;
  uint32_t level = 0;   // of a level: its number in the mipmapped array
  uint32_t levels = 0;  // of a mipmapped array: how many it has
  bool is_level = false;
  ArrayObject* mipmap = nullptr;  // of a level: the mipmapped array
  Context* context = nullptr;
  ContextId context_id = 0;
  uint16_t device = 0;
  CUDA_ARRAY3D_DESCRIPTOR description{};  // of a level: with its own width, height and depth

  std::mutex mutex;                     // guards the next field, which mipmapped arrays use
  std::vector<uint64_t> level_handles;  // 0: the program has not asked for this level yet

  bool layered() const {
    return (description.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  }
  // The array as copies see it: `slices` layers or planes, each of `rows` rows.
  uint64_t texel_bytes() const;
  uint64_t row_bytes() const { return description.Width * texel_bytes(); }
  uint64_t rows() const { return description.Height == 0 ? 1 : description.Height; }
  uint64_t slices() const { return description.Depth == 0 ? 1 : description.Depth; }
};

// Bytes of a channel. 0 for formats that arrays cannot have here.
uint64_t ChannelBytes(CUarray_format format);
// Whether textures read the format's integers as fractions. Only arrays have such formats.
bool IsNormalized(CUarray_format format);

// Null if there is no such array, or if its context has ended.
ArrayObject* FindArray(CUarray handle);
ArrayObject* FindMipmappedArray(CUmipmappedArray handle);

// The array belongs to the current context. CUDA_ERROR_INVALID_VALUE: the description makes no
// sense, also natively. CUDA_ERROR_NOT_SUPPORTED: DetShare does not offer its flags or format. Only
// the lower 32 bits of a side count. A mipmapped array gets at most as many levels as its longest
// side can be halved.
CUresult CreateArray(const CUDA_ARRAY3D_DESCRIPTOR& description, CUarray* handle);
CUresult CreateMipmappedArray(const CUDA_ARRAY3D_DESCRIPTOR& description, uint32_t levels,
                              CUmipmappedArray* handle);
// The same handle at every call, until it is destroyed. CUDA_ERROR_INVALID_VALUE: there is no such
// level.
CUresult GetLevel(CUmipmappedArray handle, uint32_t level, CUarray* array);
// Wait until all earlier work is complete. A mipmapped array's levels end with it. To destroy a
// level ends only its handle.
CUresult DestroyArray(CUarray handle);
CUresult DestroyMipmappedArray(CUmipmappedArray handle);

// The place of a box in an array of `device`. The box may begin and end inside of texels, as
// natively. CUDA_ERROR_INVALID_VALUE: the box is not inside the array. CUDA_ERROR_NOT_SUPPORTED: the
// array is on another device.
CUresult FindArrayPlace(CUarray handle, uint64_t x_bytes, uint64_t y, uint64_t z, uint64_t width,
                        uint64_t height, uint64_t depth, uint16_t device,
                        wire::ArrayPosition* position);

}  // namespace detshare::shim
