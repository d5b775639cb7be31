// The driver's parameters for a node of a graph.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device_graph.h"
#include "server/backends/cuda/cuda_address_space.h"
#include "server/backends/cuda/driver_api.h"

namespace detshare::cuda {

// The parameters of one or more of the driver's nodes in a row, with the memory that they point to.
// Must not be moved while they are in use.
class GraphNodeParams {
 public:
  GraphNodeParams() = default;
  GraphNodeParams(const GraphNodeParams&) = delete;
  GraphNodeParams& operator=(const GraphNodeParams&) = delete;

  // Reads the parameters of a step. `context` is where it runs; `green` tells whether that is
  // another context than the one of `group`. The group has the code of the step's kernel. The step
  // outlives this object.
  absl::Status Read(const GraphStep& step, const CudaAddressSpace& space, CudaGroup& group,
                    CUcontext context, bool green);
  // Reads a signal or wait with the value of a launch.
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
