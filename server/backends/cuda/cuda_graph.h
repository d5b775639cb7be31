// Executable graphs of a real GPU: a CUgraph and its CUgraphExec, for the SMs of one partition.
//
// Kernels, copies and fills name the partition's context, because a graph does not run on the SMs
// of the stream on which it is launched. A copy or fill that touches several registered pieces of
// host memory is a chain of nodes. A signal or wait is a batch of one memory operation, whose value
// is set before each launch. One call of the driver launches a graph without signals and waits.
//
// The session may free or unregister memory that a graph's copies and fills use. So the graph
// checks its addresses again before the next launch after each removal.
//
// A graph with conditional nodes is built in the CUgraph for which its handles were made
// (conditional_home.h), and runs only on the whole device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/device_graph.h"
#include "server/backends/cuda/conditional_home.h"
#include "server/backends/cuda/cuda_address_space.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/cuda_library.h"
#include "server/backends/cuda/cuda_queue.h"
#include "server/backends/cuda/deferred_reclaimer.h"

namespace detshare::cuda {

class CudaGraph final : public Graph {
 public:
  // The context and the SMs on which a graph runs.
  struct Place {
    CudaGroup* group = nullptr;
    CUcontext context = nullptr;          // of the green context, or of the group
    std::shared_ptr<GreenContext> green;  // null: the whole device
    int sm_count = 0;
  };

  // `refused` as in Device::InstantiateGraph.
  static absl::StatusOr<std::unique_ptr<CudaGraph>> Create(
      CudaContext& context, DeferredReclaimer& reclaimer, CudaAddressSpace& space,
      const Place& place, const GraphDescription& description, GraphPlace* refused);
  // Leaves the graph to the deferred reclaimer, which destroys it when nothing is in flight.
  ~CudaGraph() override;

  absl::Status Replace(GraphPlace place, const GraphNode& now) override;

  // Called by queues. Sets the values of one launch, and notes what it waits for. Returns false if
  // the space is abandoned: the launch must not wait for values that never come.
  absl::StatusOr<bool> Prepare(absl::Span<const uint64_t> values);
  CUgraphExec executable() const { return executable_; }
  // The largest local memory that a thread of its kernels needs, in bytes.
  uint32_t local_bytes() const { return local_bytes_; }
  bool prints() const { return prints_; }  // a kernel may
  // The waits on memory in one launch.
  const std::vector<MemoryOp>& memory_waits() const { return memory_waits_; }
  // Lets the stream wait for the awaited events that were recorded in the other group. The nodes of
  // the graph wait for the events of its own group.
  absl::Status WaitForOtherGroup(CUstream stream) const;
  // Returns whether a launch waits for its client or for memory.
  // Whether it has conditional nodes.
  bool conditional() const { return home_ != nullptr; }

 private:
  struct Node {
    GraphNode what;
    std::vector<CUgraphNode> handles;  // a chain, in order
  };

  CudaGraph(CudaContext& context, DeferredReclaimer& reclaimer, CudaAddressSpace& space,
            const Place& place)
      : context_(context), reclaimer_(reclaimer), space_(space), place_(place) {}

  // Returns the home of the description's conditional handles; null if there are none.
  absl::StatusOr<std::shared_ptr<ConditionalHome>> FindHome(
      const GraphDescription& description) const;
  absl::Status Build(const GraphDescription& description, GraphPlace* refused);
  // Builds the description's graph `index`, with the bodies inside it, into `graph`.
  absl::Status BuildBody(const GraphDescription& description, uint32_t index, CUgraph graph,
                         GraphPlace* refused);
  template <typename Visit>
  void ForEachNode(const Visit& visit) const {
    for (const std::vector<Node>& body : bodies_) {
      for (const Node& node : body) visit(node);
    }
  }
  absl::Status Instantiate(bool use_node_priority, GraphPlace* refused);
  absl::Status SetAttributes(CUgraphNode node, const LaunchShape& shape);
  absl::Status CheckKernel(const KernelStep& step) const;
  absl::Status CheckMemory();
  // Computes what the whole graph needs because of its kernels and memory operations.
  void NoteNeeds();

  CudaContext& context_;
  DeferredReclaimer& reclaimer_;
  CudaAddressSpace& space_;
  const Place place_;
  std::shared_ptr<ConditionalHome> home_;  // owns graph_; null: this object owns it
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
  std::vector<std::vector<Node>> bodies_;  // as in the description: the root first
  std::vector<uint32_t> valued_;           // signals and waits of the root
  uint64_t removals_seen_ = 0;  // the space's count of removals when memory was last checked
  uint32_t local_bytes_ = 0;
  bool prints_ = false;
  std::vector<MemoryOp> memory_waits_;
  std::vector<CudaMarker*> recorded_;  // markers that a launch records
  std::vector<CudaMarker*> awaited_;   // markers for which a launch waits
};

}  // namespace detshare::cuda
