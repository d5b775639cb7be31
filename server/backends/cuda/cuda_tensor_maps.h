// Encodes tensor maps with the real driver.
#pragma once

#include "coroutine_runtime/device_tensor_map.h"
#include "server/backends/cuda/cuda_context.h"

namespace detshare::cuda {

class CudaTensorMaps final : public TensorMapEncoder {
 public:
  explicit CudaTensorMaps(CudaContext& context) : context_(context) {}

  absl::StatusOr<TensorMap> Encode(const TensorMapRequest& request) override;
  absl::StatusOr<TensorMap> ReplaceAddress(const TensorMap& map, DeviceAddress address) override;

 private:
  CudaContext& context_;
};

}  // namespace detshare::cuda
