#include "server/backends/cuda/cuda_graph.h"

#include <algorithm>
#include <set>
#include <utility>

#include "coroutine_runtime/held_memory.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/graph_node_params.h"
#include "server/backends/cuda/launch_attributes.h"

namespace detshare::cuda {
namespace {

absl::Status CannotChange(const char* what) {
  return CudaError(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, what);
}

// Compares the parts of a node that the driver takes from its attributes. An executable graph
// cannot change these.
bool SameAttributes(const KernelStep& a, const KernelStep& b) {
  LaunchShape first = a.shape, second = b.shape;
  first.grid = second.grid;
  first.block = second.block;
  first.dynamic_shared_bytes = second.dynamic_shared_bytes;
  first.programmatic_serialization = second.programmatic_serialization;
  first.hints = second.hints;  // results do not depend on hints, so hints are not changed
  return first == second;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaGraph>> CudaGraph::Create(
    CudaContext& context, DeferredReclaimer& reclaimer, CudaAddressSpace& space, const Place& place,
    const GraphDescription& description, GraphPlace* refused) {
  *refused = {};
  if (description.graphs.size() != 1 && place.green != nullptr)
    return CudaError(kCudaErrorNotSupported, "conditional nodes cannot run on a partition");
  std::unique_ptr<CudaGraph> graph(new CudaGraph(context, reclaimer, space, place));
  graph->removals_seen_ = space.removals();
  DETSHARE_RETURN_IF_ERROR(graph->Build(description, refused));
  // The driver drains the context to enlarge local memory (see CudaQueue::Launch).
  const auto instantiate = [&] {
    return graph->Instantiate(description.use_node_priority, refused);
  };
  DETSHARE_RETURN_IF_ERROR(
      graph->local_bytes_ > place.group->local_bytes.load(std::memory_order_relaxed)
          ? place.group->idle.Run(space, [&] { return context.ApartFromGraphs(instantiate); })
          : instantiate());
  return graph;
}

CudaGraph::~CudaGraph() {
  if (graph_ == nullptr) return;
  if (home_ != nullptr) {
    std::vector<CUgraphNode> nodes;
    for (const Node& node : bodies_.front())
      nodes.insert(nodes.end(), node.handles.begin(), node.handles.end());
    home_->Leave(std::move(nodes), executable_);
    return;
  }
  reclaimer_.Later(
      DeferredReclaimer::Of(*place_.group),
      [&group = *place_.group, green = place_.green, graph = graph_, executable = executable_] {
        group.Enter();
        if (executable != nullptr) group.gpu.api.cuGraphExecDestroy(executable);
        group.gpu.api.cuGraphDestroy(graph);
      });
}

absl::Status CudaGraph::CheckKernel(const KernelStep& step) const {
  if (!step.shape.cooperative) return absl::OkStatus();
  // The driver may notice this error only when the graph is launched.
  OccupancyQuery query;
  query.block_size = static_cast<int>(step.shape.block.x * step.shape.block.y * step.shape.block.z);
  query.dynamic_shared_bytes = step.shape.dynamic_shared_bytes;
  const absl::StatusOr<int> blocks = step.kernel->MaxActiveBlocks(query);
  if (!blocks.ok()) return blocks.status();
  const uint64_t grid = uint64_t{step.shape.grid.x} * step.shape.grid.y * step.shape.grid.z;
  if (grid > static_cast<uint64_t>(*blocks) * static_cast<uint64_t>(place_.sm_count)) {
    return CudaError(kCudaErrorCooperativeLaunchTooLarge,
                     "the cooperative kernel has more blocks than fit at the same time");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<ConditionalHome>> CudaGraph::FindHome(
    const GraphDescription& description) const {
  std::shared_ptr<ConditionalHome> home;
  std::set<uint64_t> used;
  for (const GraphBody& body : description.graphs) {
    for (const GraphNode& node : body.nodes) {
      const auto* conditional = std::get_if<ConditionalStep>(&node.step);
      if (conditional == nullptr) continue;
      const auto found = space_.conditional_homes().Find(conditional->handle);
      if (found == nullptr || !used.insert(conditional->handle).second ||
          (home != nullptr && home != found)) {
        return CudaError(kCudaErrorInvalidValue,
                         "a conditional handle that is not of this graph, or used twice");
      }
      home = found;
    }
  }
  return home;
}

absl::Status CudaGraph::Build(const GraphDescription& description, GraphPlace* refused) {
  bodies_.resize(description.graphs.size());
  DETSHARE_ASSIGN_OR_RETURN(std::shared_ptr<ConditionalHome> home, FindHome(description));
  if (home != nullptr) {
    DETSHARE_ASSIGN_OR_RETURN(const CUgraph graph, home->Enter(space_));
    home_ = std::move(home);
    graph_ = graph;
  } else {
    DETSHARE_RETURN_IF_ERROR(
        context_.Check(context_.api.cuGraphCreate(&graph_, 0), "cuGraphCreate"));
  }
  place_.group->Enter();
  DETSHARE_RETURN_IF_ERROR(BuildBody(description, 0, graph_, refused));
  *refused = {};
  NoteNeeds();
  return absl::OkStatus();
}

absl::Status CudaGraph::BuildBody(const GraphDescription& description, uint32_t number,
                                  CUgraph graph, GraphPlace* refused) {
  const GraphBody& body = description.graphs[number];
  std::vector<Node>& nodes = bodies_[number];
  nodes.resize(body.nodes.size());
  // Lists the edges by the node at their end.
  std::vector<std::vector<const GraphEdge*>> into(body.nodes.size());
  for (const GraphEdge& edge : body.edges) into[edge.to].push_back(&edge);
  for (uint32_t index = 0; index < body.nodes.size(); ++index) {
    *refused = {number, index};
    Node& node = nodes[index];
    node.what = body.nodes[index];
    const auto* kernel = std::get_if<KernelStep>(&node.what.step);
    if (kernel != nullptr) {
      DETSHARE_RETURN_IF_ERROR(CheckKernel(*kernel));
      DETSHARE_RETURN_IF_ERROR(
          static_cast<CudaKernel&>(*kernel->kernel).UploadTo(*place_.group, space_));
      place_.group->Enter();
    }
    GraphNodeParams params;
    absl::Status status =
        params.Read(node.what.step, space_, *place_.group, place_.context, place_.green != nullptr);
    if (!status.ok()) return status;
    std::vector<CUgraphNode> before;
    std::vector<CUgraphEdgeData> kinds;
    bool plain = true;
    for (const GraphEdge* edge : into[index]) {
      before.push_back(nodes[edge->from].handles.back());
      CUgraphEdgeData& kind = kinds.emplace_back();
      kind = {};
      kind.from_port = edge->from_port;
      kind.to_port = edge->to_port;
      kind.type = edge->type;
      plain = plain && edge->from_port == 0 && edge->type == 0;
    }
    for (CUgraphNodeParams& one : params.all()) {
      CUgraphNode handle = nullptr;
      status = context_.Check(
          context_.api.cuGraphAddNode(&handle, graph, before.data(), plain ? nullptr : kinds.data(),
                                      before.size(), &one),
          "cuGraphAddNode");
      if (!status.ok()) return status;
      node.handles.push_back(handle);
      before = {handle};
      plain = true;
    }
    if (kernel != nullptr) {
      status = SetAttributes(node.handles.front(), kernel->shape);
      if (!status.ok()) return status;
    }
    if (TakesValue(node.what)) valued_.push_back(index);
    const auto* conditional = std::get_if<ConditionalStep>(&node.what.step);
    if (conditional == nullptr) continue;
    const CUgraph* inner = params.all().front().conditional.phGraph_out;
    for (uint32_t i = 0; i < conditional->body_count; ++i) {
      status = BuildBody(description, conditional->first_body + i, inner[i], refused);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::Status CudaGraph::SetAttributes(CUgraphNode node, const LaunchShape& shape) {
  LaunchAttributes attributes(shape);
  for (const CUlaunchAttribute& attribute : attributes.without_hints()) {
    // Edges express this attribute in a graph.
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) continue;
    DETSHARE_RETURN_IF_ERROR(context_.Check(
        context_.api.cuGraphKernelNodeSetAttribute(node, attribute.id, &attribute.value),
        "cuGraphKernelNodeSetAttribute"));
  }
  // A device may not know a hint; the node is made without it.
  for (const CUlaunchAttribute& hint : attributes.all().subspan(attributes.without_hints().size()))
    context_.api.cuGraphKernelNodeSetAttribute(node, hint.id, &hint.value);
  return absl::OkStatus();
}

void CudaGraph::NoteNeeds() {
  local_bytes_ = 0;
  prints_ = false;
  memory_waits_.clear();
  recorded_.clear();
  awaited_.clear();
  ForEachNode([&](const Node& node) {
    if (const auto* kernel = std::get_if<KernelStep>(&node.what.step)) {
      const auto& own = static_cast<const CudaKernel&>(*kernel->kernel);
      local_bytes_ = std::max(local_bytes_, own.local_bytes());
      prints_ |= own.prints();
    } else if (const auto* memory = std::get_if<MemoryOpsStep>(&node.what.step)) {
      for (const MemoryOp& operation : memory->operations) {
        if (operation.is_wait()) memory_waits_.push_back(operation);
      }
    } else if (const auto* record = std::get_if<RecordStep>(&node.what.step)) {
      recorded_.push_back(static_cast<CudaMarker*>(&*record->marker));
    } else if (const auto* wait = std::get_if<WaitMarkerStep>(&node.what.step)) {
      awaited_.push_back(static_cast<CudaMarker*>(&*wait->marker));
      // The node names the event of one group.
      space_.BindToGroup();
    }
  });
}

absl::Status CudaGraph::Instantiate(bool use_node_priority, GraphPlace* refused) {
  place_.group->Enter();
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  params.flags = use_node_priority ? CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0;
  absl::Status status =
      context_.Check(context_.api.cuGraphInstantiateWithParams(&executable_, graph_, &params),
                     "cuGraphInstantiateWithParams");
  if (!status.ok()) {
    for (uint32_t number = 0; number < bodies_.size(); ++number) {
      for (uint32_t index = 0; index < bodies_[number].size(); ++index) {
        const std::vector<CUgraphNode>& handles = bodies_[number][index].handles;
        if (params.hErrNode_out != nullptr &&
            std::find(handles.begin(), handles.end(), params.hErrNode_out) != handles.end()) {
          *refused = {number, index};
        }
      }
    }
    return status;
  }
  ForEachNode([&](const Node& node) {
    if (node.what.enabled) return;
    for (CUgraphNode handle : node.handles) {
      status.Update(context_.Check(context_.api.cuGraphNodeSetEnabled(executable_, handle, 0),
                                   "cuGraphNodeSetEnabled"));
    }
  });
  return status;
}

absl::Status CudaGraph::Replace(GraphPlace place, const GraphNode& now) {
  place_.group->Enter();
  Node& node = bodies_[place.graph][place.node];
  const auto* kernel = std::get_if<KernelStep>(&now.step);
  if (kernel != nullptr) {
    if (!SameAttributes(*kernel, std::get<KernelStep>(node.what.step))) {
      return CannotChange("the attributes of a kernel's launch");
    }
    DETSHARE_RETURN_IF_ERROR(CheckKernel(*kernel));
    DETSHARE_RETURN_IF_ERROR(
        static_cast<CudaKernel&>(*kernel->kernel).UploadTo(*place_.group, space_));
    place_.group->Enter();
  }
  if (!(now.step == node.what.step)) {
    GraphNodeParams params;
    absl::Status status =
        params.Read(now.step, space_, *place_.group, place_.context, place_.green != nullptr);
    if (!status.ok()) return status;
    if (params.all().size() != node.handles.size() ||
        params.all().front().type == CU_GRAPH_NODE_TYPE_EMPTY) {
      return CannotChange("a copy or fill of nothing, or of other pieces of host memory");
    }
    for (size_t i = 0; i < node.handles.size(); ++i) {
      status = context_.Check(
          context_.api.cuGraphExecNodeSetParams(executable_, node.handles[i], &params.all()[i]),
          "cuGraphExecNodeSetParams");
      if (!status.ok() && i == 0) return CannotChange("the driver refuses the change");
      if (!status.ok()) return status;
    }
  }
  if (now.enabled != node.what.enabled) {
    for (CUgraphNode handle : node.handles) {
      DETSHARE_RETURN_IF_ERROR(
          context_.Check(context_.api.cuGraphNodeSetEnabled(executable_, handle, now.enabled),
                         "cuGraphNodeSetEnabled"));
    }
  }
  const bool needs_more =
      std::holds_alternative<MemoryOpsStep>(now.step) ||
      std::holds_alternative<RecordStep>(now.step) ||
      std::holds_alternative<WaitMarkerStep>(now.step) ||
      (kernel != nullptr && kernel->kernel != std::get<KernelStep>(node.what.step).kernel);
  node.what = now;
  if (needs_more) NoteNeeds();
  return absl::OkStatus();
}

absl::Status CudaGraph::CheckMemory() {
  const uint64_t removals = space_.removals();
  if (removals == removals_seen_) [[likely]]
    return absl::OkStatus();
  bool held = true;
  ForEachNode([&](const Node& node) {
    if (const auto* copy = std::get_if<CopyRequest>(&node.what.step)) {
      // Nodes keep their arrays alive, so arrays need no check.
      held = held && HoldsMemoryOf(space_, *copy);
    } else if (const auto* fill = std::get_if<FillRequest>(&node.what.step)) {
      held = held && HoldsMemoryOf(space_, *fill);
    } else if (const auto* memory = std::get_if<MemoryOpsStep>(&node.what.step)) {
      for (const MemoryOp& operation : memory->operations)
        held = held && HoldsMemoryOf(space_, operation);
    }
  });
  if (!held) {
    return CudaError(kCudaErrorInvalidValue, "a node of the graph accesses freed memory");
  }
  removals_seen_ = removals;
  return absl::OkStatus();
}

absl::Status CudaGraph::WaitForOtherGroup(CUstream stream) const {
  for (CudaMarker* const marker : awaited_) {
    DETSHARE_ASSIGN_OR_RETURN(const CUevent own, marker->EventOf(*place_.group));
    if (marker->event() == own) continue;
    DETSHARE_RETURN_IF_ERROR(context_.Check(
        context_.api.cuStreamWaitEvent(stream, marker->event(), CU_EVENT_WAIT_DEFAULT),
        "cuStreamWaitEvent"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> CudaGraph::Prepare(absl::Span<const uint64_t> values) {
  DETSHARE_RETURN_IF_ERROR(CheckMemory());
  for (size_t i = 0; i < valued_.size(); ++i) {
    const Node& node = bodies_.front()[valued_[i]];
    GraphNodeParams params;
    params.ReadValued(node.what.step, place_.context, values[i]);
    DETSHARE_RETURN_IF_ERROR(
        context_.Check(context_.api.cuGraphExecNodeSetParams(executable_, node.handles.front(),
                                                             &params.all().front()),
                       "cuGraphExecNodeSetParams"));
  }
  for (CudaMarker* const marker : recorded_) marker->NoteRecord(*place_.group);
  // Notes the waits last: a graph that is not launched waits for nothing.
  for (size_t i = 0; i < valued_.size(); ++i) {
    if (const auto* wait = std::get_if<WaitStep>(&bodies_.front()[valued_[i]].what.step)) {
      if (!space_.NoteHostWait(wait->fence, values[i])) return false;
    }
  }
  return memory_waits_.empty() || !space_.abandoned();
}

}  // namespace detshare::cuda
