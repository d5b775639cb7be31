// Graphs as devices see them: the description of a graph, and a graph that can be launched.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "coroutine_runtime/device.h"

namespace detshare {

// The action of a node (GraphStep). std::monostate: none.
struct KernelStep {
  std::shared_ptr<Kernel> kernel;  // keeps its library loaded
  LaunchShape shape;               // programmatic_serialization is ignored; edges express it
  std::vector<std::byte> parameters;
  friend bool operator==(const KernelStep&, const KernelStep&) = default;
};
// Release-stores the value that the launch gives, when all earlier steps are complete.
struct SignalStep {
  std::atomic<uint64_t>* fence = nullptr;
  friend bool operator==(const SignalStep&, const SignalStep&) = default;
};
// Blocks later steps until *fence >= the value that the launch gives.
struct WaitStep {
  const std::atomic<uint64_t>* fence = nullptr;
  friend bool operator==(const WaitStep&, const WaitStep&) = default;
};
struct RecordStep {
  std::shared_ptr<Marker> marker;
  bool* recorded = nullptr;  // the runtime's flag, which lives as long as the marker
  friend bool operator==(const RecordStep&, const RecordStep&) = default;
};
// Blocks later steps until the point for which the marker stands when the graph is launched.
struct WaitMarkerStep {
  std::shared_ptr<Marker> marker;
  friend bool operator==(const WaitMarkerStep&, const WaitMarkerStep&) = default;
};

// As Queue::MemoryOps.
struct MemoryOpsStep {
  std::vector<MemoryOp> operations;
  friend bool operator==(const MemoryOpsStep&, const MemoryOpsStep&) = default;
};
// Runs bodies as CUDA's conditional nodes do, by the value of `handle` when all earlier steps are
// complete. The bodies are graphs [first_body, first_body + body_count) of the description.
struct ConditionalStep {
  enum class Type { kIf = 0, kWhile = 1, kSwitch = 2 };  // CUgraphConditionalNodeType
  uint64_t handle = 0;                                   // an id from Device::CreateGraphCondition
  Type type = Type::kIf;
  uint32_t first_body = 0, body_count = 0;
  friend bool operator==(const ConditionalStep&, const ConditionalStep&) = default;
};

using GraphStep =
    std::variant<std::monostate, KernelStep, CopyRequest, FillRequest, SignalStep, WaitStep,
                 RecordStep, WaitMarkerStep, MemoryOpsStep, ConditionalStep>;

struct GraphNode {
  GraphStep step;
  bool enabled = true;  // kernels, copies and fills only
  // The arrays of a copy. They live as long as a node uses them.
  std::array<std::shared_ptr<Array>, 2> arrays{};
  friend bool operator==(const GraphNode&, const GraphNode&) = default;
};

// `to` begins when `from` is complete, or as the port and type of CUgraphEdgeData specify.
struct GraphEdge {
  uint32_t from = 0, to = 0;  // from < to
  uint8_t from_port = 0, to_port = 0, type = 0;
  friend auto operator<=>(const GraphEdge&, const GraphEdge&) = default;
};

struct GraphBody {
  std::vector<GraphNode> nodes;
  std::vector<GraphEdge> edges;  // sorted
};

// The creator has checked edges and bodies. Addresses belonged to the space at creation.
struct GraphDescription {
  std::vector<GraphBody> graphs;   // the root, then the bodies of conditional nodes
  bool use_node_priority = false;  // kernels use their own priorities, not the launching stream's

  const GraphBody& root() const { return graphs.front(); }
};

// The position of one node in a description.
struct GraphPlace {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t graph = kNone, node = kNone;
};

// Whether a launch gives the node a value. Signals and waits get values, in the order of the nodes.
inline bool TakesValue(const GraphNode& node) {
  return std::holds_alternative<SignalStep>(node.step) ||
         std::holds_alternative<WaitStep>(node.step);
}

// A graph that can be launched on the partition for which it was created. Threading: one thread at
// a time. Lifetime: ends before its address space; running launches continue.
class Graph {
 public:
  virtual ~Graph() = default;
  // Later launches use `now` as the node; the kind of its step must stay. On an error the node is
  // unchanged. CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE if the device cannot make the change in place.
  virtual absl::Status Replace(GraphPlace place, const GraphNode& now) = 0;
};

}  // namespace detshare
