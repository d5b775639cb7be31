// The driver's attributes for a launch's shape, except dimensions and shared memory.
#pragma once

#include "absl/types/span.h"
#include "coroutine_runtime/device.h"
#include "server/backends/cuda/driver_api.h"
#include "server/backends/cuda/hint_attributes.h"

namespace detshare::cuda {

class LaunchAttributes {
 public:
  explicit LaunchAttributes(const LaunchShape& shape) {
    if (shape.cluster.x != 0) {
      CUlaunchAttributeValue& value = Add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
      value.clusterDim.x = shape.cluster.x;
      value.clusterDim.y = shape.cluster.y;
      value.clusterDim.z = shape.cluster.z;
    }
    if (shape.cooperative) Add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
    if (shape.programmatic_serialization) {
      Add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
          .programmaticStreamSerializationAllowed = 1;
    }
    if (shape.has_priority) Add(CU_LAUNCH_ATTRIBUTE_PRIORITY).priority = shape.priority;
    without_hints_ = count_;
    if (shape.hints.given != 0) [[unlikely]]
      count_ += WriteHints(shape.hints, attributes_ + count_);
  }

  // Valid as long as this object. Hints come last.
  absl::Span<CUlaunchAttribute> all() { return absl::MakeSpan(attributes_, count_); }
  absl::Span<CUlaunchAttribute> without_hints() {
    return absl::MakeSpan(attributes_, without_hints_);
  }
  bool has_hints() const { return count_ != without_hints_; }

 private:
  CUlaunchAttributeValue& Add(CUlaunchAttributeID id) {
    CUlaunchAttribute& attribute = attributes_[count_++];
    attribute = {};
    attribute.id = id;
    return attribute.value;
  }

  CUlaunchAttribute attributes_[4 + kMaxHints];
  unsigned count_ = 0, without_hints_ = 0;
};

}  // namespace detshare::cuda
