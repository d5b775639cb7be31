#include "server/backends/soft/soft_graph_plan.h"

#include <algorithm>
#include <utility>

#include "coroutine_runtime/status_cuda.h"
#include "server/backends/soft/soft_transfer.h"

namespace detshare::soft {
namespace {

// Divides the nodes among queues. The edges are sorted by node: a node's edges follow the edges of
// earlier nodes.
void AssignQueues(const std::vector<GraphEdge>& edges, GraphSchedule& graph) {
  std::vector<std::vector<uint32_t>> before(graph.nodes.size());
  for (const GraphEdge& edge : edges) before[edge.to].push_back(edge.from);
  std::vector<bool> followed(graph.nodes.size(), false);  // by a node on its queue
  bool first_root = true;
  for (uint32_t index = 0; index < graph.nodes.size(); ++index) {
    GraphSchedule::Node& node = graph.nodes[index];
    const auto leader = std::find_if(before[index].begin(), before[index].end(),
                                     [&](uint32_t from) { return !followed[from]; });
    if (leader != before[index].end()) {
      followed[*leader] = true;
      node.queue = graph.nodes[*leader].queue;
    } else if (before[index].empty() && std::exchange(first_root, false)) {
      node.queue = 0;
    } else {
      node.queue = graph.queues++;
      node.begins_queue = true;
    }
    for (const uint32_t from : before[index]) {
      if (graph.nodes[from].queue == node.queue) continue;
      node.waits_for.push_back(from);
      graph.nodes[from].awaited = true;
    }
  }
  for (uint32_t index = 0; index < graph.nodes.size(); ++index) {
    GraphSchedule::Node& node = graph.nodes[index];
    if (followed[index] || node.queue == 0) continue;
    node.awaited = true;
    graph.ends.push_back(index);
  }
}

}  // namespace

absl::StatusOr<PlannedNode> GraphPlan::PlanNode(const GraphNode& node) const {
  PlannedNode planned{node, std::nullopt};
  if (const auto* kernel = std::get_if<KernelStep>(&node.step)) {
    absl::StatusOr<GridRequest> request =
        PlanLaunch(core->properties, sms, space, static_cast<SoftKernel&>(*kernel->kernel),
                   kernel->shape, kernel->parameters);
    if (!request.ok()) return request.status();
    request->quantum = core->options.quantum;
    request->log = core->options.log;
    // Makes a job once, so that instantiation fails with the errors of the interpreter.
    absl::StatusOr<std::unique_ptr<GridJob>> job = GridJob::Create(*request);
    if (!job.ok()) return job.status();
    planned.grid = *std::move(request);
    // The request holds the code. The step is dropped, so that the plan does not hold the library:
    // the owner of the description releases the library, on the owner's thread.
    planned.node.step = std::monostate();
  } else if (const auto* copy = std::get_if<CopyRequest>(&node.step)) {
    if (absl::Status status = MakeCopy(space, *copy).status(); !status.ok()) return status;
  } else if (const auto* fill = std::get_if<FillRequest>(&node.step)) {
    if (absl::Status status = MakeFill(space, *fill).status(); !status.ok()) return status;
  } else if (const auto* conditional = std::get_if<ConditionalStep>(&node.step)) {
    planned.condition = space->conditions().Find(conditional->handle);
    if (planned.condition == nullptr) {
      return CudaError(kCudaErrorInvalidValue, "the conditional handle does not exist");
    }
  }
  return planned;
}

absl::StatusOr<std::shared_ptr<GraphPlan>> GraphPlan::Create(Core& core, SmRange sms,
                                                             std::shared_ptr<SpaceState> space,
                                                             const GraphDescription& description,
                                                             GraphPlace* refused) {
  auto plan = std::make_shared<GraphPlan>(GraphPlan{&core, sms, std::move(space), {}});
  for (uint32_t index = 0; index < description.graphs.size(); ++index) {
    const GraphBody& body = description.graphs[index];
    GraphSchedule& graph = plan->graphs.emplace_back();
    graph.nodes.resize(body.nodes.size());
    for (uint32_t node = 0; node < body.nodes.size(); ++node) {
      absl::StatusOr<PlannedNode> planned = plan->PlanNode(body.nodes[node]);
      if (!planned.ok()) {
        *refused = {index, node};
        return planned.status();
      }
      graph.nodes[node].work = *std::move(planned);
    }
    AssignQueues(body.edges, graph);
  }
  return plan;
}

}  // namespace detshare::soft
