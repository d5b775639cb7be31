#include "client_shim/work/graph/flatten.h"

#include <algorithm>
#include <cstring>

#include "client_shim/work/copy.h"
#include "client_shim/work/launch.h"
#include "proto/wire/copy.h"
#include "proto/wire/launch.h"

namespace detshare::shim {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

template <typename T>
void Append(const T& value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

FlatNode Plain(wire::GraphNodeKind kind, const GraphNode* source) {
  FlatNode node;
  node.kind = kind;
  node.source = source;
  return node;
}

template <typename T>
FlatNode With(wire::GraphNodeKind kind, const GraphNode* source, const T& body) {
  FlatNode node = Plain(kind, source);
  Append(body, &node.body);
  return node;
}

wire::cuLaunchKernelEx ArgumentsOf(const KernelNode& kernel) {
  LaunchRequest launch = kernel.launch;
  launch.flags &= ~wire::kLaunchProgrammaticSerialization;  // the edges say it
  if (kernel.hints.given != 0) launch.flags |= wire::kLaunchHasHints;
  return LaunchArguments(0, kernel.id, launch);
}

FlatNode Kernel(const GraphNode& node, const KernelNode& kernel) {
  FlatNode flat = With(wire::kNodeKernel, &node, ArgumentsOf(kernel));
  flat.body.append(reinterpret_cast<const char*>(kernel.parameters.data()),
                   kernel.parameters.size());
  if (kernel.hints.given != 0) {
    flat.body.append((8 - kernel.parameters.size() % 8) % 8, '\0');
    Append(kernel.hints, &flat.body);
  }
  return flat;
}

wire::PitchedLocation At(uint64_t address, uint64_t row_pitch, uint64_t slice_pitch) {
  return {{address, wire::kAddress, 0}, row_pitch, slice_pitch};
}
wire::PitchedLocation At(const PitchedPlace& side) {
  if (side.in_array()) return wire::InArray(side.array);
  return At(side.place.gpu, side.row_pitch, side.slice_pitch);
}

bool Pageable(const CopyNode& copy) { return copy.to.pageable() || copy.from.pageable(); }
bool NeedsStaging(const CopyNode& copy) { return copy.to.pageable() != copy.from.pageable(); }

// The part of a copy that the GPU does. `staging` takes the place of its ordinary memory.
FlatNode Copy(const GraphNode& node, const CopyNode& copy, const std::byte* staging) {
  const wire::PitchedLocation dense =
      At(reinterpret_cast<uint64_t>(staging), copy.width, copy.width * copy.height);
  return With(wire::kNodeCopy, &node,
              wire::cuMemcpy3DAsync_v2{copy.to.pageable() ? dense : At(copy.to),
                                       copy.from.pageable() ? dense : At(copy.from),
                                       copy.width,
                                       copy.height,
                                       copy.depth,
                                       0,
                                       0,
                                       {0, kNoFence, 0}});
}

class Flattener {
 public:
  Flattener(FlattenResources& resources, Flattened* flat, const GraphNode** culprit)
      : resources_(resources), flat_(*flat), culprit_(*culprit) {}

  CUresult Run(const Graph& graph) {
    flat_ = {};
    flat_.graphs.emplace_back();
    pending_.push_back(&graph);
    // Flattening a graph appends the bodies of its conditional nodes.
    for (index_ = 0; index_ < pending_.size(); ++index_) {
      Ends ends;
      if (const CUresult result = Inline(*pending_[index_], false, &ends); result != CUDA_SUCCESS)
        return result;
    }
    return flat_.values.size() > wire::kMaxGraphValues ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
  }

 private:
  // The flat nodes where edges to and from a node end.
  struct Ends {
    uint32_t first = kNone;
    uint32_t last = kNone;
  };

  FlatGraph& here() { return flat_.graphs[index_]; }

  uint32_t Add(FlatNode node) {
    here().nodes.push_back(std::move(node));
    return static_cast<uint32_t>(here().nodes.size() - 1);
  }

  void Join(uint32_t from, uint32_t to, const CUgraphEdgeData& data = {}) {
    here().edges.push_back({from, to, data.from_port, data.to_port, data.type, {}});
  }

  CUresult Refuse(const GraphNode& node, CUresult error) {
    culprit_ = &node;
    return error;
  }

  // Adds the nodes of one graph. A child graph (`ends` is wanted) begins and ends with one node
  // each.
  CUresult Inline(const Graph& graph, bool child, Ends* ends) {
    std::vector<GraphNode*> order;
    if (!TopologicalOrder(graph, &order)) {
      for (const auto& node : graph.nodes) {
        if (std::find(order.begin(), order.end(), node.get()) == order.end())
          return Refuse(*node, CUDA_ERROR_INVALID_VALUE);
      }
    }
    uint32_t roots = 0, leaves = 0;
    for (const GraphNode* node : order) {
      roots += node->dependencies.empty();
      leaves += node->dependents.empty();
    }
    if (child && roots != 1) ends->first = Add(Plain(wire::kNodeEmpty, nullptr));
    std::vector<Ends> of(graph.nodes.size());
    for (const GraphNode* node : order) {
      Ends& own = of[node->position];
      const CUresult result = AddNode(*node, &own);
      if (result != CUDA_SUCCESS) return result;
      for (const GraphEdge& edge : node->dependencies)
        Join(of[edge.node->position].last, own.first, edge.data);
      if (child && node->dependencies.empty()) {
        if (roots == 1) {
          ends->first = own.first;
        } else {
          Join(ends->first, own.first);
        }
      }
    }
    if (!child) return CUDA_SUCCESS;
    if (leaves == 1) {
      for (const GraphNode* node : order) {
        if (node->dependents.empty()) ends->last = of[node->position].last;
      }
    } else if (leaves == 0) {
      ends->last = ends->first;
    } else {
      ends->last = Add(Plain(wire::kNodeEmpty, nullptr));
      for (const GraphNode* node : order) {
        if (node->dependents.empty()) Join(of[node->position].last, ends->last);
      }
    }
    return CUDA_SUCCESS;
  }

  // Adds the flat nodes of one node, which follow each other, or a child graph.
  CUresult AddNode(const GraphNode& node, Ends* ends) {
    if (const auto* child = std::get_if<ChildNode>(&node.body))
      return Inline(*child->graph, true, ends);
    std::vector<FlatNode> chain;
    const CUresult result = Chain(node, &chain);
    if (result != CUDA_SUCCESS) return Refuse(node, result);
    FlatRange range{static_cast<uint32_t>(index_), static_cast<uint32_t>(here().nodes.size()),
                    static_cast<uint32_t>(chain.size())};
    for (FlatNode& flat : chain) {
      const uint32_t index = Add(std::move(flat));
      if (index != range.first) Join(index - 1, index);
      ends->last = index;
    }
    ends->first = range.first;
    flat_.ranges[&node] = range;
    return CUDA_SUCCESS;
  }

  CUresult Chain(const GraphNode& node, std::vector<FlatNode>* chain) {
    const CUresult result =
        std::visit([&](const auto& body) { return Nodes(node, body, chain); }, node.body);
    for (FlatNode& flat : *chain) {
      const bool optional = flat.kind == wire::kNodeKernel || flat.kind == wire::kNodeCopy ||
                            flat.kind == wire::kNodeFill;
      flat.enabled = node.enabled || !optional;
    }
    return result;
  }

  template <typename Body>
  CUresult Nodes(const GraphNode& node, const Body& body, std::vector<FlatNode>* chain) {
    if constexpr (std::is_same_v<Body, KernelNode>) {
      chain->push_back(Kernel(node, body));
    } else if constexpr (std::is_same_v<Body, CopyNode>) {
      return CopyNodes(node, body, chain);
    } else if constexpr (std::is_same_v<Body, FillNode>) {
      const CUDA_MEMSET_NODE_PARAMS& fill = body.description;
      Place place{body.address};
      if (!body.known && FindFillPlace(fill.dst, fill.pitch, fill.elementSize, fill.width,
                                       fill.height, body.context.device, &place) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      // Only the lower bits of a narrow element count.
      const uint32_t mask = fill.elementSize < 4 ? (1u << (8 * fill.elementSize)) - 1 : UINT32_MAX;
      chain->push_back(
          With(wire::kNodeFill, &node,
               wire::cuMemsetD2D32Async{place.gpu, fill.height > 1 ? fill.pitch : 0, fill.width,
                                        fill.height, fill.value & mask, fill.elementSize, 0, 0}));
    } else if constexpr (std::is_same_v<Body, HostNode>) {
      return HostStepNodes(node, nullptr, chain);
    } else if constexpr (std::is_same_v<Body, EventRecordNode>) {
      if (index_ != 0) return CUDA_ERROR_NOT_SUPPORTED;
      const FenceIndex fence = resources_.Fence();
      if (fence == kNoFence) return CUDA_ERROR_OUT_OF_MEMORY;
      chain->push_back(With(wire::kNodeEventRecord, &node, wire::GraphEvent{body.event.id, 0}));
      chain->push_back(With(wire::kNodeSignal, &node, wire::GraphFence{fence, 0}));
      flat_.values.push_back({LaunchValueUse::kEvent, static_cast<uint32_t>(flat_.records.size())});
      flat_.records.push_back({&node, fence});
    } else if constexpr (std::is_same_v<Body, EventWaitNode>) {
      if (index_ != 0) return CUDA_ERROR_NOT_SUPPORTED;
      chain->push_back(With(wire::kNodeEventWait, &node, wire::GraphEvent{body.event.id, 0}));
    } else if constexpr (std::is_same_v<Body, MemoryOpsNode>) {
      if (index_ != 0) return CUDA_ERROR_NOT_SUPPORTED;
      if (body.operations.empty()) {  // it only orders others
        chain->push_back(Plain(wire::kNodeEmpty, &node));
        return CUDA_SUCCESS;
      }
      chain->push_back(
          With(wire::kNodeMemoryOps, &node,
               wire::GraphMemoryOps{static_cast<uint32_t>(body.operations.size()), body.flags}));
      chain->back().body += body.wire;
    } else if constexpr (std::is_same_v<Body, ConditionalNode>) {
      chain->push_back(With(wire::kNodeConditional, &node,
                            wire::GraphConditional{body.condition, static_cast<uint32_t>(body.type),
                                                   static_cast<uint32_t>(flat_.graphs.size()),
                                                   static_cast<uint32_t>(body.bodies.size()), 0}));
      for (const auto& inner : body.bodies) {
        pending_.push_back(inner.get());
        flat_.graphs.emplace_back();
      }
    } else {
      // A graph's memory stays where it is, so its memory nodes only order others.
      static_assert(std::is_same_v<Body, EmptyNode> || std::is_same_v<Body, AllocNode> ||
                    std::is_same_v<Body, FreeNode> || std::is_same_v<Body, ChildNode>);
      chain->push_back(Plain(wire::kNodeEmpty, &node));
    }
    return CUDA_SUCCESS;
  }

  CUresult CopyNodes(const GraphNode& node, const CopyNode& copy, std::vector<FlatNode>* chain) {
    if (!Pageable(copy)) {
      chain->push_back(Copy(node, copy, nullptr));
      return CUDA_SUCCESS;
    }
    std::byte* staging = nullptr;
    if (NeedsStaging(copy)) {
      staging = resources_.Staging(copy.bytes());
      if (staging == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    // Data from the GPU is fetched after the copy, and data for the GPU is brought before it.
    if (staging != nullptr && copy.to.pageable()) chain->push_back(Copy(node, copy, staging));
    const CUresult result = HostStepNodes(node, staging, chain);
    if (result != CUDA_SUCCESS) return result;
    if (staging != nullptr && copy.from.pageable()) chain->push_back(Copy(node, copy, staging));
    return CUDA_SUCCESS;
  }

  CUresult HostStepNodes(const GraphNode& node, std::byte* staging, std::vector<FlatNode>* chain) {
    if (index_ != 0) return CUDA_ERROR_NOT_SUPPORTED;  // a body may run any number of times
    HostStep step;
    step.source = &node;
    step.staging = staging;
    step.reached = resources_.Fence();
    step.resume = resources_.Fence();
    if (step.reached == kNoFence || step.resume == kNoFence) return CUDA_ERROR_OUT_OF_MEMORY;
    chain->push_back(With(wire::kNodeSignal, &node, wire::GraphFence{step.reached, 0}));
    chain->push_back(With(wire::kNodeWait, &node, wire::GraphFence{step.resume, 0}));
    const auto index = static_cast<uint32_t>(flat_.steps.size());
    flat_.values.push_back({LaunchValueUse::kReached, index});
    flat_.values.push_back({LaunchValueUse::kResume, index});
    flat_.steps.push_back(step);
    return CUDA_SUCCESS;
  }

  FlattenResources& resources_;
  Flattened& flat_;
  const GraphNode*& culprit_;
  std::vector<const Graph*> pending_;  // parallel to flat_.graphs
  size_t index_ = 0;                   // the graph that is being made
};

// Hands out the resources that a node has already.
class SameResources : public FlattenResources {
 public:
  SameResources(const GraphNode& node, const Flattened& flat) {
    for (const HostStep& step : flat.steps) {
      if (step.source != &node) continue;
      fences_ = {step.reached, step.resume};
      staging_ = step.staging;
    }
    for (const EventRecord& record : flat.records) {
      if (record.source == &node) fences_ = {record.fence};
    }
  }
  FenceIndex Fence() override { return next_ < fences_.size() ? fences_[next_++] : kNoFence; }
  std::byte* Staging(uint64_t) override { return staging_; }

 private:
  std::vector<FenceIndex> fences_;
  size_t next_ = 0;
  std::byte* staging_ = nullptr;
};

}  // namespace

CUresult Flatten(const Graph& graph, FlattenResources& resources, Flattened* flat,
                 const GraphNode** culprit) {
  *culprit = nullptr;
  return Flattener(resources, flat, culprit).Run(graph);
}

CUresult FlattenAgain(const GraphNode& node, Flattened& flat) {
  const auto range = flat.ranges.find(&node);
  if (range == flat.ranges.end() || std::holds_alternative<ConditionalNode>(node.body))
    return CUDA_ERROR_INVALID_VALUE;
  // A graph of this node alone.
  SameResources resources(node, flat);
  Graph alone;
  alone.nodes.push_back(std::make_unique<GraphNode>());
  alone.nodes[0]->graph = &alone;
  bool ok = true;
  alone.nodes[0]->body = CloneBody(node.body, false, &ok);
  alone.nodes[0]->enabled = node.enabled;
  Flattened made;
  const GraphNode* culprit;
  if (!ok || Flatten(alone, resources, &made, &culprit) != CUDA_SUCCESS)
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<FlatNode>& now = made.graphs[0].nodes;
  std::vector<FlatNode>& nodes = flat.graphs[range->second.graph].nodes;
  if (now.size() != range->second.count) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < now.size(); ++i) {
    if (now[i].kind != nodes[range->second.first + i].kind) return CUDA_ERROR_INVALID_VALUE;
  }
  for (uint32_t i = 0; i < now.size(); ++i) {
    now[i].source = &node;
    nodes[range->second.first + i] = std::move(now[i]);
  }
  return CUDA_SUCCESS;
}

void FlattenKernelAgain(const KernelNode& kernel, FlatNode& flat) {
  const wire::cuLaunchKernelEx arguments = ArgumentsOf(kernel);
  std::memcpy(flat.body.data(), &arguments, sizeof(arguments));
  std::memcpy(flat.body.data() + sizeof(arguments), kernel.parameters.data(),
              kernel.parameters.size());
}

bool SameShape(const Flattened& a, const Flattened& b) {
  if (a.graphs.size() != b.graphs.size()) return false;
  for (size_t i = 0; i < a.graphs.size(); ++i) {
    const FlatGraph& first = a.graphs[i];
    const FlatGraph& second = b.graphs[i];
    if (first.nodes.size() != second.nodes.size() || first.edges.size() != second.edges.size())
      return false;
    for (size_t j = 0; j < first.nodes.size(); ++j) {
      if (first.nodes[j].kind != second.nodes[j].kind) return false;
    }
    const size_t bytes = first.edges.size() * sizeof(wire::GraphEdge);
    if (bytes != 0 && std::memcmp(first.edges.data(), second.edges.data(), bytes) != 0)
      return false;
  }
  return true;
}

void AppendNode(const FlatNode& node, std::string* bytes) {
  Append(wire::GraphNode{node.kind, static_cast<uint32_t>(node.body.size()), node.enabled ? 1u : 0u,
                         0},
         bytes);
  *bytes += node.body;
  bytes->append((8 - node.body.size() % 8) % 8, '\0');
}

std::string Payload(const Flattened& flat) {
  std::string bytes;
  for (const FlatGraph& graph : flat.graphs) {
    Append(wire::GraphHeader{static_cast<uint32_t>(graph.nodes.size()),
                             static_cast<uint32_t>(graph.edges.size())},
           &bytes);
    for (const FlatNode& node : graph.nodes) AppendNode(node, &bytes);
    for (const wire::GraphEdge& edge : graph.edges) Append(edge, &bytes);
  }
  return bytes;
}

}  // namespace detshare::shim
