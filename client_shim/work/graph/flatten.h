// Flattens a graph into the form that the daemon gets. Child graphs are inlined, and nodes are in
// topological order. Host functions and copies of ordinary memory, which only this process can do,
// become signals, waits, and copies of memory that the GPU reaches. Needs no session: tests flatten
// without a daemon. The caller holds GraphMutex() while it uses graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "client_shim/work/graph/graph.h"
#include "proto/wire/graph.h"

namespace detshare::shim {

struct FlatNode {
  wire::GraphNodeKind kind = wire::kNodeEmpty;
  bool enabled = true;
  std::string body;                   // the bytes behind wire::GraphNode, not padded
  const GraphNode* source = nullptr;  // null: the node only orders others
};

struct FlatGraph {
  std::vector<FlatNode> nodes;
  std::vector<wire::GraphEdge> edges;
};

// The flat nodes that a node of the graph became. They follow each other.
struct FlatRange {
  uint32_t graph = 0;
  uint32_t first = 0;
  uint32_t count = 0;
};

// A step of a launch that this process does. It does the step when `reached` has the launch's
// value, and then stores the launch's value to `resume`.
struct HostStep {
  const GraphNode* source = nullptr;  // a HostNode or a CopyNode
  FenceIndex reached = kNoFence;
  FenceIndex resume = kNoFence;
  std::byte* staging = nullptr;  // for a copy that has device memory on its other side
};

// The meaning of the value that a launch gives for one signal or wait.
struct LaunchValueUse {
  enum Kind : uint8_t { kReached, kResume, kEvent } kind = kReached;
  uint32_t index = 0;  // of the step, or of the event record
};

struct EventRecord {
  const GraphNode* source = nullptr;
  FenceIndex fence = kNoFence;
};

struct Flattened {
  std::vector<FlatGraph> graphs;  // the first is the root; the others are bodies of conditional
                                  // nodes
  std::vector<HostStep> steps;
  std::vector<EventRecord> records;
  std::vector<LaunchValueUse> values;  // in the payload's order of signals and waits
  std::unordered_map<const GraphNode*, FlatRange> ranges;  // without entries for child graphs
                                                           // themselves
};

// The source of fences and memory for flattening. Flattening the same graph always takes them in
// the same order.
class FlattenResources {
 public:
  virtual ~FlattenResources() = default;
  // kNoFence: no fence is left.
  virtual FenceIndex Fence() = 0;
  // Memory that both processes reach at this address. Null: none is left.
  virtual std::byte* Staging(uint64_t bytes) = 0;
};

// CUDA_ERROR_INVALID_VALUE: the graph has a cycle. CUDA_ERROR_NOT_SUPPORTED: a node cannot be where
// it is. CUDA_ERROR_OUT_OF_MEMORY: a resource is used up. `*culprit` is the node, or null.
CUresult Flatten(const Graph& graph, FlattenResources& resources, Flattened* flat,
                 const GraphNode** culprit);

// Flattens one node again. It keeps its fences and staging memory. CUDA_ERROR_INVALID_VALUE: it
// would become nodes of other kinds.
CUresult FlattenAgain(const GraphNode& node, Flattened& flat);

// The same for a kernel with another launch and other parameters of the same size.
void FlattenKernelAgain(const KernelNode& kernel, FlatNode& flat);

// Whether both have the same kinds of nodes and the same edges.
bool SameShape(const Flattened& a, const Flattened& b);

// Appends one node as it is sent: wire::GraphNode and its body, padded.
void AppendNode(const FlatNode& node, std::string* bytes);
// The payload of cuGraphInstantiateWithParams.
std::string Payload(const Flattened& flat);

}  // namespace detshare::shim
