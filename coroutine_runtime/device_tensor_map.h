// Tensor maps: the 128-byte descriptors that kernels give to the tensor memory accelerator.
//
// A map is data: it owns nothing and refers to no object of the device. Encoding a map is a pure
// function of the request on a given device. It accesses no memory at the address, and neither
// waits nor drains the device. Enumerations are CUDA's, passed through.
//
// Threading: any thread. Errors: as device.h.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "coroutine_runtime/device.h"

namespace detshare {

using TensorMap = std::array<uint64_t, 16>;

inline constexpr uint32_t kTensorRankLimit = 5;

struct TensorMapRequest {
  enum class Kind : uint8_t { kTiled, kIm2col, kIm2colWide };
  Kind kind = Kind::kTiled;

  // For every kind. The arrays hold `rank` numbers; `strides` (in bytes) holds one less.
  uint32_t data_type = 0;
  uint32_t rank = 0;  // 1 to kTensorRankLimit
  DeviceAddress address = 0;
  std::array<uint64_t, kTensorRankLimit> dimensions{};
  std::array<uint64_t, kTensorRankLimit> strides{};
  std::array<uint32_t, kTensorRankLimit> element_strides{};
  uint32_t interleave = 0, swizzle = 0, l2_promotion = 0, out_of_bounds_fill = 0;

  std::array<uint32_t, kTensorRankLimit> box{};  // kTiled
  // kIm2col: `rank` - 2 numbers; kIm2colWide: only the first number.
  std::array<int32_t, kTensorRankLimit> lower_corner{}, upper_corner{};
  uint32_t channels_per_pixel = 0, pixels_per_column = 0;  // kIm2col, kIm2colWide
  uint32_t wide_mode = 0;                                  // kIm2colWide
};

// A driver may write a part of the map before it refuses a request. The error carries that part.
inline constexpr char kPartialTensorMapUrl[] = "detshare/partial_tensor_map";
inline void SetPartialTensorMap(const TensorMap& map, absl::Status* error) {
  error->SetPayload(kPartialTensorMapUrl, absl::Cord(absl::string_view(
                                              reinterpret_cast<const char*>(&map), sizeof(map))));
}
// Returns false if the driver wrote nothing.
inline bool GetPartialTensorMap(const absl::Status& error, TensorMap* map) {
  const absl::optional<absl::Cord> payload = error.GetPayload(kPartialTensorMapUrl);
  if (!payload.has_value() || payload->size() != sizeof(*map)) return false;
  std::memcpy(map, std::string(*payload).data(), sizeof(*map));
  return true;
}

class TensorMapEncoder {
 public:
  virtual ~TensorMapEncoder() = default;
  // CUDA_ERROR_INVALID_VALUE if the device cannot describe the request. The error may have a
  // partial map.
  virtual absl::StatusOr<TensorMap> Encode(const TensorMapRequest& request) = 0;
  // Returns the same map for a tensor at another address. `map` may contain arbitrary bytes.
  virtual absl::StatusOr<TensorMap> ReplaceAddress(const TensorMap& map, DeviceAddress address) = 0;
};

}  // namespace detshare
