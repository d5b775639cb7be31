// What the driver is told of a node.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device_graph.h"
#include "server/backends/cuda/cuda_address_space.h"
#include "server/backends/cuda/driver_api.h"

namespace detshare::cuda {

// One or more nodes of the driver in a row, with what their parameters point to. Not moved while
// they are in use.
class GraphNodeParams {
 public:
  GraphNodeParams() = default;
  GraphNodeParams(const GraphNodeParams&) = delete;
  GraphNodeParams& operator=(const GraphNodeParams&) = delete;

  // `context` is where it is to run; `green` whether that is not the primary one. The step outlives
  // this object.
  absl::Status Read(const GraphStep& step, const CudaAddressSpace& space, CUcontext context,
                    bool green);
  // A signal or wait with the value of a launch.
  void ReadValued(const GraphStep& step, CUcontext context, uint64_t value);

  std::vector<CUgraphNodeParams>& all() { return all_; }

 private:
  CUgraphNodeParams& Add(CUgraphNodeType type);
  void AddMemoryOps(CUcontext context);

  std::vector<CUgraphNodeParams> all_;
  absl::InlinedVector<void*, 16> kernel_params_;
  std::vector<CUstreamBatchMemOpParams> memory_ops_;
};

}  // namespace detshare::cuda
