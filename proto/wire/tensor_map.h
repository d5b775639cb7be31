// Tensor maps. Transport: ring. The replies are the 128 bytes of a CUtensorMap. With an error, a reply
// has them if the driver wrote them nevertheless. Enumerations are CUDA's.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

inline constexpr uint32_t kTensorRank = 5;  // the maximum rank; array entries beyond `rank` are 0

struct cuTensorMapEncodeTiled {
  uint64_t address;
  uint64_t dimensions[kTensorRank];
  uint64_t strides[kTensorRank];  // bytes; `rank` - 1 of them
  uint32_t box[kTensorRank];
  uint32_t element_strides[kTensorRank];
  uint32_t data_type;
  uint32_t rank;
  uint32_t interleave;
  uint32_t swizzle;
  uint32_t l2_promotion;
  uint32_t out_of_bounds_fill;
};
struct cuTensorMapEncodeTiled_Reply {
  uint64_t map[16];
};

struct cuTensorMapEncodeIm2col {
  uint64_t address;
  uint64_t dimensions[kTensorRank];
  uint64_t strides[kTensorRank];
  int32_t lower_corner[kTensorRank];  // `rank` - 2 of them
  int32_t upper_corner[kTensorRank];
  uint32_t element_strides[kTensorRank];
  uint32_t channels_per_pixel;
  uint32_t pixels_per_column;
  uint32_t data_type;
  uint32_t rank;
  uint32_t interleave;
  uint32_t swizzle;
  uint32_t l2_promotion;
  uint32_t out_of_bounds_fill;
  uint32_t reserved;
};
struct cuTensorMapEncodeIm2col_Reply {
  uint64_t map[16];
};

struct cuTensorMapEncodeIm2colWide {
  uint64_t address;
  uint64_t dimensions[kTensorRank];
  uint64_t strides[kTensorRank];
  uint32_t element_strides[kTensorRank];
  int32_t lower_corner_width;
  int32_t upper_corner_width;
  uint32_t channels_per_pixel;
  uint32_t pixels_per_column;
  uint32_t mode;
  uint32_t data_type;
  uint32_t rank;
  uint32_t interleave;
  uint32_t swizzle;
  uint32_t l2_promotion;
  uint32_t out_of_bounds_fill;
};
struct cuTensorMapEncodeIm2colWide_Reply {
  uint64_t map[16];
};

struct cuTensorMapReplaceAddress {
  uint64_t map[16];
  uint64_t address;
};
struct cuTensorMapReplaceAddress_Reply {
  uint64_t map[16];
};

}  // namespace detshare::wire
