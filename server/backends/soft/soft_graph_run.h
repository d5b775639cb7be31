// One launch of a graph: submits the plan's nodes to queues of the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/backends/soft/soft_graph_plan.h"

namespace detshare::soft {

// Copies share the plan. Conditional nodes keep a copy until they end. Used by the thread that
// launches, or by a worker that submits the body of a conditional node.
class GraphRun {
 public:
  // The tasks of a graph's nodes, by index; null for nodes that need no task.
  using Work = std::vector<std::unique_ptr<Job>>;

  // Takes one launch number for the kernels in bodies. They have it each time the body runs.
  explicit GraphRun(std::shared_ptr<const GraphPlan> plan)
      : plan_(std::move(plan)),
        body_number_(plan_->graphs.size() > 1 ? plan_->space->NextGridId() : 0) {}

  // Does everything that can fail.
  absl::StatusOr<Work> Prepare(uint32_t graph) const;
  // `values`: the values for the signals and waits of the root graph.
  void Submit(uint32_t graph, Work work, const std::shared_ptr<QueueState>& queue,
              absl::Span<const uint64_t> values) const;

  void Wait(const std::shared_ptr<QueueState>& queue, std::shared_ptr<Point> point) const;
  std::shared_ptr<Point> Record(const std::shared_ptr<QueueState>& queue) const;
  // Sets the conditions whose handles ask for it to their default values.
  void SetDefaults(const std::shared_ptr<QueueState>& queue) const;

 private:
  class OneStep;
  class Defaults;
  class Decision;

  void SubmitNode(const PlannedNode& node, std::unique_ptr<Job> job,
                  const std::shared_ptr<QueueState>& queue,
                  absl::Span<const uint64_t>* values) const;
  void SubmitJob(std::unique_ptr<Job> job, const std::shared_ptr<QueueState>& queue) const;
  void SubmitConditional(const ConditionalStep& step, std::shared_ptr<Condition> condition,
                         const std::shared_ptr<QueueState>& queue) const;

  std::shared_ptr<const GraphPlan> plan_;
  uint64_t body_number_;
};

}  // namespace detshare::soft
