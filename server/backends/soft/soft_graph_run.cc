#include "server/backends/soft/soft_graph_run.h"

#include <utility>

#include "coroutine_runtime/status_cuda.h"
#include "server/backends/soft/soft_nested_grids.h"
#include "server/backends/soft/soft_transfer.h"

namespace detshare::soft {
namespace {

Operation RecordOf(std::shared_ptr<Point> point, std::shared_ptr<SpaceState> owner) {
  Operation operation;
  operation.kind = Operation::Kind::kRecord;
  operation.owner = std::move(owner);
  operation.point = std::move(point);
  return operation;
}

}  // namespace

// A task that does something once, when everything before is complete.
class GraphRun::OneStep : public Job {
 public:
  Claimed Claim(Chunk*) override {
    if (claimed_) return Claimed::kNothing;
    claimed_ = true;
    return Claimed::kChunk;
  }
  bool HasMore() const override { return !claimed_; }
  void Perform(Chunk*) override {}
  bool Finish(Chunk*) override { return true; }

 private:
  bool claimed_ = false;
};

class GraphRun::Defaults final : public OneStep {
 public:
  explicit Defaults(std::vector<std::shared_ptr<Condition>> conditions)
      : conditions_(std::move(conditions)) {}
  void Conclude(Timeline& timeline, const Timeline::EntryPtr& entry) override {
    timeline.EndNothing(entry);
    for (const std::shared_ptr<Condition>& condition : conditions_) {
      condition->value.store(condition->default_value, std::memory_order_relaxed);
    }
  }

 private:
  const std::vector<std::shared_ptr<Condition>> conditions_;
};

// Reads a condition and submits the body that it selects, on the same queue. The queue has no other
// work.
class GraphRun::Decision final : public OneStep {
 public:
  Decision(const GraphRun& run, const ConditionalStep& step, std::shared_ptr<Condition> condition,
           std::shared_ptr<QueueState> queue, std::shared_ptr<Point> over)
      : run_(run),
        step_(step),
        condition_(std::move(condition)),
        queue_(std::move(queue)),
        over_(std::move(over)) {}

  void Conclude(Timeline& timeline, const Timeline::EntryPtr& entry) override {
    timeline.EndNothing(entry);
    SpaceState& space = *run_.plan_->space;
    const uint32_t body = Choose();
    if (body < step_.body_count && !space.stopped()) {
      absl::StatusOr<Work> work = run_.Prepare(step_.first_body + body);
      if (work.ok()) {
        run_.Submit(step_.first_body + body, *std::move(work), queue_, {});
        if (step_.type == ConditionalStep::Type::kWhile) {
          run_.SubmitJob(
              std::make_unique<Decision>(run_, step_, condition_, queue_, std::move(over_)),
              queue_);
          return;
        }
      } else {
        space.SetFault(CudaResultOf(work.status()), std::string(work.status().message()));
      }
    }
    run_.plan_->core->engine.Submit(queue_, RecordOf(std::move(over_), run_.plan_->space));
  }

  // When the work is skipped, the loop ends.
  std::shared_ptr<Point> PointIfSkipped() override { return std::move(over_); }

 private:
  // The index of the body to run; `body_count` when none runs.
  uint32_t Choose() const {
    const uint32_t value = condition_->value.load(std::memory_order_relaxed);
    if (step_.type == ConditionalStep::Type::kSwitch) return value;
    if (value != 0) return 0;
    return step_.type == ConditionalStep::Type::kIf ? 1 : step_.body_count;
  }

  const GraphRun run_;
  const ConditionalStep step_;
  const std::shared_ptr<Condition> condition_;
  const std::shared_ptr<QueueState> queue_;
  std::shared_ptr<Point> over_;
};

absl::StatusOr<GraphRun::Work> GraphRun::Prepare(uint32_t graph) const {
  Work work;
  for (const GraphSchedule::Node& scheduled : plan_->graphs[graph].nodes) {
    std::unique_ptr<Job>& job = work.emplace_back();
    const PlannedNode& planned = scheduled.work;
    if (!planned.node.enabled) continue;
    if (planned.grid.has_value()) {
      GridRequest request = *planned.grid;
      NumberLaunch(request, graph == 0 ? plan_->space->NextGridId() : body_number_);
      absl::StatusOr<std::unique_ptr<Job>> grid = MakeKernelJob(std::move(request));
      if (!grid.ok()) return grid.status();
      job = *std::move(grid);
    } else if (const auto* copy = std::get_if<CopyRequest>(&planned.node.step)) {
      absl::StatusOr<std::unique_ptr<Job>> made = MakeCopy(plan_->space, *copy);
      if (!made.ok()) return made.status();
      job = *std::move(made);
    } else if (const auto* fill = std::get_if<FillRequest>(&planned.node.step)) {
      absl::StatusOr<std::unique_ptr<Job>> made = MakeFill(plan_->space, *fill);
      if (!made.ok()) return made.status();
      job = *std::move(made);
    }
  }
  return work;
}

void GraphRun::Submit(uint32_t graph, Work work, const std::shared_ptr<QueueState>& queue,
                      absl::Span<const uint64_t> values) const {
  const GraphSchedule& schedule = plan_->graphs[graph];
  std::vector<std::shared_ptr<QueueState>> queues(schedule.queues);
  queues[0] = queue;
  std::shared_ptr<Point> beginning;
  if (schedule.queues > 1) beginning = Record(queue);
  // Null for nodes that are not awaited.
  std::vector<std::shared_ptr<Point>> points(schedule.nodes.size());
  for (size_t index = 0; index < schedule.nodes.size(); ++index) {
    const GraphSchedule::Node& node = schedule.nodes[index];
    std::shared_ptr<QueueState>& own = queues[node.queue];
    if (node.begins_queue) {
      own = std::make_shared<QueueState>(queue->track->urgent);
      if (node.waits_for.empty()) Wait(own, beginning);
    }
    for (const uint32_t from : node.waits_for) Wait(own, points[from]);
    SubmitNode(node.work, std::move(work[index]), own, &values);
    if (node.awaited) points[index] = Record(own);
  }
  for (const uint32_t end : schedule.ends) Wait(queue, points[end]);
}

void GraphRun::SubmitNode(const PlannedNode& planned, std::unique_ptr<Job> job,
                          const std::shared_ptr<QueueState>& queue,
                          absl::Span<const uint64_t>* values) const {
  if (job != nullptr) return SubmitJob(std::move(job), queue);
  Operation operation;
  if (TakesValue(planned.node)) {
    operation.space = plan_->space;
    operation.value = values->front();
    values->remove_prefix(1);
    if (const auto* signal = std::get_if<SignalStep>(&planned.node.step)) {
      operation.kind = Operation::Kind::kWriteFence;
      operation.fence = signal->fence;
    } else {
      operation.kind = Operation::Kind::kWaitFence;
      operation.awaited = std::get<WaitStep>(planned.node.step).fence;
    }
    plan_->core->engine.Submit(queue, std::move(operation));
  } else if (const auto* record = std::get_if<RecordStep>(&planned.node.step)) {
    static_cast<SoftMarker&>(*record->marker).set_point(Record(queue));
  } else if (const auto* wait = std::get_if<WaitMarkerStep>(&planned.node.step)) {
    std::shared_ptr<Point> point = static_cast<SoftMarker&>(*wait->marker).point();
    if (point != nullptr) Wait(queue, std::move(point));
  } else if (const auto* memory = std::get_if<MemoryOpsStep>(&planned.node.step)) {
    for (const MemoryOp& one : memory->operations) {
      if (one.bytes() == 0) continue;  // a barrier: a queue is in order anyway
      Operation touch;
      touch.kind = Operation::Kind::kMemory;
      touch.space = plan_->space;
      touch.memory = one;
      plan_->core->engine.Submit(queue, std::move(touch));
    }
  } else if (const auto* conditional = std::get_if<ConditionalStep>(&planned.node.step)) {
    SubmitConditional(*conditional, planned.condition, queue);
  }
}

void GraphRun::SubmitConditional(const ConditionalStep& step, std::shared_ptr<Condition> condition,
                                 const std::shared_ptr<QueueState>& queue) const {
  auto own = std::make_shared<QueueState>(queue->track->urgent);
  Wait(own, Record(queue));
  auto over = std::make_shared<Point>();
  over->late = true;
  SubmitJob(std::make_unique<Decision>(*this, step, std::move(condition), own, over), own);
  Wait(queue, std::move(over));
}

void GraphRun::SetDefaults(const std::shared_ptr<QueueState>& queue) const {
  std::vector<std::shared_ptr<Condition>> conditions;
  for (const GraphSchedule& graph : plan_->graphs) {
    for (const GraphSchedule::Node& node : graph.nodes) {
      const std::shared_ptr<Condition>& condition = node.work.condition;
      if (condition != nullptr && condition->assign_default) conditions.push_back(condition);
    }
  }
  if (conditions.empty()) return;
  SubmitJob(std::make_unique<Defaults>(std::move(conditions)), queue);
}

void GraphRun::SubmitJob(std::unique_ptr<Job> job, const std::shared_ptr<QueueState>& queue) const {
  Operation operation;
  operation.kind = Operation::Kind::kJob;
  operation.space = plan_->space;
  operation.job = std::move(job);
  plan_->core->engine.Submit(queue, std::move(operation));
}

void GraphRun::Wait(const std::shared_ptr<QueueState>& queue, std::shared_ptr<Point> point) const {
  Operation operation;
  operation.kind = Operation::Kind::kWait;
  operation.owner = plan_->space;
  operation.point = std::move(point);
  plan_->core->engine.Submit(queue, std::move(operation));
}

std::shared_ptr<Point> GraphRun::Record(const std::shared_ptr<QueueState>& queue) const {
  auto point = std::make_shared<Point>();
  plan_->core->engine.Submit(queue, RecordOf(point, plan_->space));
  return point;
}

}  // namespace detshare::soft
