// Arrays, textures and surfaces. Transport: ring. Enumerations and flags are CUDA's. copy.h has the
// copies from and to arrays.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"
#include "proto/wire/copy.h"

namespace detshare::wire {

// With `levels` other than 0 it makes a mipmapped array: cuMipmappedArrayCreate uses this op, too.
struct cuArray3DCreate_v2 {
  uint64_t width;
  uint64_t height;
  uint64_t depth;
  uint32_t format;  // CUarray_format
  uint32_t channels;
  uint32_t flags;  // CUDA_ARRAY3D_*
  uint32_t levels;
};
struct cuArray3DCreate_v2_Reply {
  ArrayId array;
  uint32_t reserved;
};

// The reply comes when all work that was submitted before has completed and the array is destroyed.
// Its memory stays as long as a texture or a surface uses it. Also for mipmapped arrays.
struct cuArrayDestroy {
  ArrayId array;
  uint32_t reserved;
};

struct ResourceView {
  uint64_t width;
  uint64_t height;
  uint64_t depth;
  uint32_t format;  // CUresourceViewFormat; 0: that of the array
  uint32_t first_level;
  uint32_t last_level;
  uint32_t first_layer;
  uint32_t last_layer;
  uint32_t reserved;
};

struct cuTexObjectCreate {
  uint32_t type;   // CUresourcetype: says which of the following fields are used
  ArrayId array;   // arrays, mipmapped arrays
  uint32_t level;  // arrays: the level of `array`
  uint32_t format;
  uint32_t channels;
  uint32_t reserved;
  uint64_t address;  // linear, pitched: memory of the session; needs format and channels
  uint64_t bytes;    // linear
  uint64_t width;    // pitched
  uint64_t height;
  uint64_t pitch;

  uint32_t address_modes[3];
  uint32_t filter_mode;
  uint32_t flags;
  uint32_t max_anisotropy;
  uint32_t mipmap_filter_mode;
  uint32_t mipmap_level_bias;  // the bits of floats, from here to border_color
  uint32_t min_mipmap_level_clamp;
  uint32_t max_mipmap_level_clamp;
  uint32_t border_color[4];

  uint32_t has_view;  // 0 or 1
  uint32_t reserved2;
  ResourceView view;
};
struct cuTexObjectCreate_Reply {
  uint64_t handle;  // the device's handle, which kernels use
};

// The texture is destroyed when all work that was submitted before has completed.
struct cuTexObjectDestroy {
  uint64_t handle;
};

struct cuSurfObjectCreate {
  ArrayId array;
  uint32_t level;
};
struct cuSurfObjectCreate_Reply {
  uint64_t handle;
};

struct cuSurfObjectDestroy {
  uint64_t handle;
};

struct cuDeviceGetTexture1DLinearMaxWidth {
  uint32_t format;
  uint32_t channels;
};
struct cuDeviceGetTexture1DLinearMaxWidth_Reply {
  uint64_t width;  // texels
};

}  // namespace detshare::wire
