// Encodes tensor maps for kernels of the software GPU (ptx/tensor_map.h has their contents).
#pragma once

#include "coroutine_runtime/device_tensor_map.h"

namespace detshare::soft {

// Tiled maps. Those of pixels (im2col) and of interleaved tensors are CUDA_ERROR_NOT_SUPPORTED.
class SoftTensorMaps final : public TensorMapEncoder {
 public:
  absl::StatusOr<TensorMap> Encode(const TensorMapRequest& request) override;
  absl::StatusOr<TensorMap> ReplaceAddress(const TensorMap& map, DeviceAddress address) override;
};

}  // namespace detshare::soft
