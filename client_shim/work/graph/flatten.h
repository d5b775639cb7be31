// What crosses to the daemon of a graph: child graphs inlined, nodes in topological order, and what
// only this process can do (host functions, copies of ordinary memory) expressed by signals, waits
// and copies of memory that the GPU reaches. Needs no session: tests flatten without a daemon.
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
  std::string body;                   // what follows wire::GraphNode, not padded
  const GraphNode* source = nullptr;  // null: only orders others
};

struct FlatGraph {
  std::vector<FlatNode> nodes;
  std::vector<wire::GraphEdge> edges;
};

// What a node of the graph became: nodes that follow each other.
struct FlatRange {
  uint32_t graph = 0;
  uint32_t first = 0;
  uint32_t count = 0;
};

// Something that this process does in a launch: when `reached` has the launch's value it does it,
// and stores the launch's value to `resume`.
struct HostStep {
  const GraphNode* source = nullptr;  // a HostNode or a CopyNode
  FenceIndex reached = kNoFence;
  FenceIndex resume = kNoFence;
  std::byte* staging = nullptr;  // of a copy that has device memory on its other side
};

// What a launch gives for one signal or wait.
struct LaunchValueUse {
  enum Kind : uint8_t { kReached, kResume, kEvent } kind = kReached;
  uint32_t index = 0;  // of the step, or of the event record
};

struct EventRecord {
  const GraphNode* source = nullptr;
  FenceIndex fence = kNoFence;
};

struct Flattened {
  std::vector<FlatGraph> graphs;  // the first is the root; then bodies of conditional nodes
  std::vector<HostStep> steps;
  std::vector<EventRecord> records;
  std::vector<LaunchValueUse> values;  // in the payload order of signals and waits
  std::unordered_map<const GraphNode*, FlatRange> ranges;  // not of child graphs themselves
};

// Where flattening gets what it uses up, in the same order whenever the same graph is flattened.
class FlattenResources {
 public:
  virtual ~FlattenResources() = default;
  // kNoFence: there are no more.
  virtual FenceIndex Fence() = 0;
  // Memory that both sides reach at this address. Null: there is none.
  virtual std::byte* Staging(uint64_t bytes) = 0;
};

// CUDA_ERROR_INVALID_VALUE: there is a cycle. CUDA_ERROR_NOT_SUPPORTED: a node that cannot be where
// it is. CUDA_ERROR_OUT_OF_MEMORY: a resource is used up. `*culprit` is the node, or null.
CUresult Flatten(const Graph& graph, FlattenResources& resources, Flattened* flat,
                 const GraphNode** culprit);

// Flattens one node anew, which keeps its fences and staging memory. CUDA_ERROR_INVALID_VALUE when
// it would become other kinds of nodes than it is.
CUresult FlattenAgain(const GraphNode& node, Flattened& flat);

// The same for a kernel that has another launch and other parameters, of the same size.
void FlattenKernelAgain(const KernelNode& kernel, FlatNode& flat);

// Whether both have the same kinds of nodes and the same edges.
bool SameShape(const Flattened& a, const Flattened& b);

// One node as it crosses: wire::GraphNode and its body, padded.
void AppendNode(const FlatNode& node, std::string* bytes);
// The payload of cuGraphInstantiateWithParams.
std::string Payload(const Flattened& flat);

}  // namespace detshare::shim
