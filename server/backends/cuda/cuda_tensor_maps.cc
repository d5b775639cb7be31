#include "server/backends/cuda/cuda_tensor_maps.h"

#include <cstring>

#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"

namespace detshare::cuda {
namespace {

static_assert(sizeof(CUtensorMap) == sizeof(TensorMap));

constexpr int kUnwritten = 0xa5;

TensorMap BytesOf(const CUtensorMap& map) {
  TensorMap bytes;
  std::memcpy(bytes.data(), &map, sizeof(map));
  return bytes;
}

}  // namespace

absl::StatusOr<TensorMap> CudaTensorMaps::Encode(const TensorMapRequest& request) {
  context_.Enter();
  const DriverApi& api = context_.api;
  // The driver writes a part of the map before some errors. The pattern shows whether it did.
  CUtensorMap map;
  std::memset(&map, kUnwritten, sizeof(map));
  const auto type = static_cast<CUtensorMapDataType>(request.data_type);
  const auto interleave = static_cast<CUtensorMapInterleave>(request.interleave);
  const auto swizzle = static_cast<CUtensorMapSwizzle>(request.swizzle);
  const auto promotion = static_cast<CUtensorMapL2promotion>(request.l2_promotion);
  const auto fill = static_cast<CUtensorMapFloatOOBfill>(request.out_of_bounds_fill);
  void* const address = reinterpret_cast<void*>(request.address);
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  const char* call = "cuTensorMapEncode";
  switch (request.kind) {
    case TensorMapRequest::Kind::kTiled:
      call = "cuTensorMapEncodeTiled";
      result = api.cuTensorMapEncodeTiled(
          &map, type, request.rank, address, request.dimensions.data(), request.strides.data(),
          request.box.data(), request.element_strides.data(), interleave, swizzle, promotion, fill);
      break;
    case TensorMapRequest::Kind::kIm2col:
      call = "cuTensorMapEncodeIm2col";
      result = api.cuTensorMapEncodeIm2col(
          &map, type, request.rank, address, request.dimensions.data(), request.strides.data(),
          request.lower_corner.data(), request.upper_corner.data(), request.channels_per_pixel,
          request.pixels_per_column, request.element_strides.data(), interleave, swizzle, promotion,
          fill);
      break;
    case TensorMapRequest::Kind::kIm2colWide:
      call = "cuTensorMapEncodeIm2colWide";
      if (api.cuTensorMapEncodeIm2colWide == nullptr)
        return CudaError(kCudaErrorNotSupported, "the driver is older than CUDA 12.8");
      result = api.cuTensorMapEncodeIm2colWide(
          &map, type, request.rank, address, request.dimensions.data(), request.strides.data(),
          request.lower_corner[0], request.upper_corner[0], request.channels_per_pixel,
          request.pixels_per_column, request.element_strides.data(), interleave,
          static_cast<CUtensorMapIm2ColWideMode>(request.wide_mode), swizzle, promotion, fill);
      break;
  }
  absl::Status status = context_.Check(result, call);
  if (status.ok()) return BytesOf(map);
  TensorMap unwritten;
  std::memset(unwritten.data(), kUnwritten, sizeof(unwritten));
  const TensorMap written = BytesOf(map);
  if (written != unwritten) SetPartialTensorMap(written, &status);
  return status;
}

absl::StatusOr<TensorMap> CudaTensorMaps::ReplaceAddress(const TensorMap& map,
                                                         DeviceAddress address) {
  context_.Enter();
  CUtensorMap changed;
  std::memcpy(&changed, map.data(), sizeof(changed));
  DETSHARE_RETURN_IF_ERROR(context_.Check(
      context_.api.cuTensorMapReplaceAddress(&changed, reinterpret_cast<void*>(address)),
      "cuTensorMapReplaceAddress"));
  return BytesOf(changed);
}

}  // namespace detshare::cuda
