#include "server/backends/soft/soft_tensor_maps.h"

#include <cuda.h>

#include <algorithm>
#include <bit>

#include "coroutine_runtime/status_cuda.h"
#include "server/backends/soft/ptx/tensor_map.h"

namespace detshare::soft {
namespace {

using ptx::TensorMapBytes;

static_assert(sizeof(TensorMapBytes) == sizeof(TensorMap));
static_assert(ptx::kTensorRanks == kTensorRankLimit);
static_assert(static_cast<int>(ptx::TensorType::kTF32Ftz) == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ);
static_assert(static_cast<int>(ptx::TensorSwizzle::k128) == CU_TENSOR_MAP_SWIZZLE_128B);

absl::StatusOr<TensorMap> Checked(const TensorMapBytes& map) {
  const char* const problem = ptx::CheckTensorMap(map);
  if (problem != nullptr) return CudaError(kCudaErrorInvalidValue, problem);
  return std::bit_cast<TensorMap>(map);
}

// Values of CUDA's enumerations, which are below 256 (device_tensor_map.h).
uint8_t Small(uint32_t value) { return static_cast<uint8_t>(std::min<uint32_t>(value, 0xff)); }

}  // namespace

absl::StatusOr<TensorMap> SoftTensorMaps::Encode(const TensorMapRequest& request) {
  if (request.kind != TensorMapRequest::Kind::kTiled)
    return CudaError(kCudaErrorNotSupported, "the software GPU has no im2col tensor maps");
  if (request.interleave == CU_TENSOR_MAP_INTERLEAVE_16B ||
      request.interleave == CU_TENSOR_MAP_INTERLEAVE_32B) {
    return CudaError(kCudaErrorNotSupported, "the software GPU does not interleave tensors");
  }
  if (request.l2_promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B)
    return CudaError(kCudaErrorInvalidValue, "unknown promotion to the L2 cache");
  TensorMapBytes map;
  map.address = request.address;
  map.rank = Small(request.rank);
  map.type = Small(request.data_type);
  map.swizzle = Small(request.swizzle);
  map.fill = Small(request.out_of_bounds_fill);
  map.interleave = Small(request.interleave);
  for (uint32_t i = 0; i < std::min(request.rank, kTensorRankLimit); ++i) {
    if (request.dimensions[i] == 0 || request.dimensions[i] > uint64_t{1} << 32)
      return CudaError(kCudaErrorInvalidValue, "a dimension of the tensor is not 1 to 2^32");
    map.last[i] = static_cast<uint32_t>(request.dimensions[i] - 1);
    map.box[i] = static_cast<uint16_t>(std::min<uint32_t>(request.box[i], 0xffff));
    map.element_strides[i] = Small(request.element_strides[i]);
    if (i > 0) map.strides[i - 1] = request.strides[i - 1];
  }
  return Checked(map);
}

absl::StatusOr<TensorMap> SoftTensorMaps::ReplaceAddress(const TensorMap& map,
                                                         DeviceAddress address) {
  auto changed = std::bit_cast<TensorMapBytes>(map);
  changed.address = address;
  return Checked(changed);
}

}  // namespace detshare::soft
