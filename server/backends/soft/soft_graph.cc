#include "server/backends/soft/soft_graph.h"

#include <utility>

#include "coroutine_runtime/status_cuda.h"
#include "server/backends/soft/soft_graph_plan.h"
#include "server/backends/soft/soft_graph_run.h"

namespace detshare::soft {

absl::StatusOr<std::unique_ptr<SoftGraph>> SoftGraph::Create(Core& core, SmRange sms,
                                                             std::shared_ptr<SpaceState> space,
                                                             const GraphDescription& description,
                                                             GraphPlace* refused) {
  absl::StatusOr<std::shared_ptr<GraphPlan>> plan =
      GraphPlan::Create(core, sms, std::move(space), description, refused);
  if (!plan.ok()) return plan.status();
  return std::unique_ptr<SoftGraph>(new SoftGraph(*std::move(plan)));
}

SoftGraph::SoftGraph(std::shared_ptr<GraphPlan> plan) : plan_(std::move(plan)) {}

SoftGraph::~SoftGraph() = default;

absl::Status SoftGraph::Replace(GraphPlace place, const GraphNode& now) {
  absl::StatusOr<PlannedNode> planned = plan_->PlanNode(now);
  if (!planned.ok()) return planned.status();
  // Conditional nodes of launches that still run may read the plan, so it is copied.
  if (plan_->graphs.size() > 1) plan_ = std::make_shared<GraphPlan>(*plan_);
  plan_->graphs[place.graph].nodes[place.node].work = *std::move(planned);
  return absl::OkStatus();
}

absl::Status SoftGraph::Launch(const std::shared_ptr<QueueState>& queue,
                               absl::Span<const uint64_t> values) {
  GraphRun run(plan_);
  absl::StatusOr<GraphRun::Work> work = run.Prepare(0);
  if (!work.ok()) return work.status();
  // A launch of a graph begins after the graph's previous launch has ended.
  if (last_end_ != nullptr && last_queue_ != queue) run.Wait(queue, last_end_);
  run.SetDefaults(queue);
  run.Submit(0, *std::move(work), queue, values);
  last_end_ = run.Record(queue);
  last_queue_ = queue;
  return absl::OkStatus();
}

}  // namespace detshare::soft
