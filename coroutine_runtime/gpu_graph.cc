#include "coroutine_runtime/gpu_graph.h"

#include <algorithm>
#include <utility>

#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"

namespace detshare {
namespace {

// After this many launches that lacked the instantiation that they wanted, a launch creates it.
constexpr int kMaxMissed = 256;
// The guessed duration of each kernel of a graph that has not been timed.
constexpr Nanoseconds kGuess = 10 * policy::kMicrosecond;

// If all kernels of a graph have one priority, they use the priority of the queue on which the
// graph is launched. The policy determines that priority.
bool PrioritiesDiffer(const GraphDescription& description) {
  const LaunchShape* first = nullptr;
  for (const GraphBody& graph : description.graphs) {
    for (const GraphNode& node : graph.nodes) {
      const auto* const kernel = std::get_if<KernelStep>(&node.step);
      if (kernel == nullptr) continue;
      const LaunchShape& shape = kernel->shape;
      if (first == nullptr) first = &shape;
      if (shape.has_priority != first->has_priority || shape.priority != first->priority)
        return true;
    }
  }
  return false;
}

uint64_t BytesOf(const GraphNode& node) {
  uint64_t bytes = sizeof(GraphNode);
  if (const auto* kernel = std::get_if<KernelStep>(&node.step)) bytes += kernel->parameters.size();
  if (const auto* memory = std::get_if<MemoryOpsStep>(&node.step)) {
    bytes += memory->operations.size() * sizeof(MemoryOp);
  }
  return bytes;
}

// Conditional nodes belong to the topology, so an update cannot replace one.
bool SameConditional(const GraphNode& a, const GraphNode& b) {
  const auto* first = std::get_if<ConditionalStep>(&a.step);
  const auto* second = std::get_if<ConditionalStep>(&b.step);
  return first == nullptr || second == nullptr ? first == second : *first == *second;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuGraph>> GpuGraph::Create(GpuCoroutine& coroutine,
                                                           GraphDescription description,
                                                           GraphPlace* refused) {
  std::unique_ptr<GpuGraph> graph(new GpuGraph(coroutine, std::move(description)));
  Partition& wanted = coroutine.Holding(coroutine.partition(), graph->sms_);
  Device& device = coroutine.device();
  absl::StatusOr<Instance*> instance = coroutine.space().bound() || graph->CanStartOn(wanted)
                                           ? graph->FittingInstance(wanted, refused)
                                       : &wanted == device.urgent()
                                           ? graph->InstanceOn(device.whole(), refused)
                                           : graph->InstanceOn(*device.urgent(), refused);
  if (!instance.ok()) return instance.status();
  if (coroutine.entity() != nullptr) {
    for (Partition* const partition : coroutine.entity()->assignment().prepare)
      graph->Want(*partition);
  }
  return graph;
}

GpuGraph::~GpuGraph() {
  SubmitKept();
  coroutine_.RemoveUnready(*this);
}

GpuGraph::GpuGraph(GpuCoroutine& coroutine, GraphDescription description)
    : coroutine_(coroutine),
      description_(std::move(description)),
      sms_(description_.graphs.size() > 1 ? GpuCoroutine::kAllSms : 1) {
  description_.use_node_priority = description_.use_node_priority && PrioritiesDiffer(description_);
  CountAgain();
}

void GpuGraph::CountAgain() {
  value_count_ = kernels_ = bytes_ = 0;
  waits_ = false;
  blocks_ = 0;
  code_ = 0;
  recorded_.clear();
  awaited_.clear();
  for (const GraphBody& graph : description_.graphs) {
    bytes_ += graph.edges.size() * sizeof(GraphEdge);
    for (const GraphNode& node : graph.nodes) {
      bytes_ += BytesOf(node);
      waits_ |= std::holds_alternative<WaitStep>(node.step) ||
                std::holds_alternative<MemoryOpsStep>(node.step);
      const auto* kernel = std::get_if<KernelStep>(&node.step);
      if (kernel == nullptr) continue;
      coroutine_.BindFor(*kernel->kernel);
      const LaunchShape& shape = kernel->shape;
      const uint64_t words[] = {code_, kernel->kernel->code(), ShapeOf(shape)};
      code_ =
          StableHash(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(words), sizeof(words)));
      const uint64_t blocks = uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
      blocks_ = std::max(blocks_, static_cast<uint32_t>(std::min<uint64_t>(blocks, UINT32_MAX)));
      if (!BlocksRunTogether(shape)) continue;
      sms_ = std::max(sms_, GpuCoroutine::SmsFor(*kernel->kernel, kernel->shape));
    }
  }
  for (const GraphNode& node : description_.root().nodes) {
    value_count_ += TakesValue(node);
    kernels_ += node.enabled && std::holds_alternative<KernelStep>(node.step);
    if (const auto* record = std::get_if<RecordStep>(&node.step)) {
      recorded_.push_back(record->recorded);
    }
    if (const auto* wait = std::get_if<WaitMarkerStep>(&node.step)) {
      awaited_.push_back(wait->marker.get());
    }
  }
}

const GraphNode* GpuGraph::Find(GraphPlace place) const {
  if (place.graph >= description_.graphs.size()) return nullptr;
  const GraphBody& graph = description_.graphs[place.graph];
  return place.node < graph.nodes.size() ? &graph.nodes[place.node] : nullptr;
}

GpuGraph::Instance* GpuGraph::Existing(const Partition& partition) {
  for (Instance& instance : instances_) {
    if (instance.partition == &partition) return &instance;
  }
  return nullptr;
}

absl::StatusOr<GpuGraph::Instance*> GpuGraph::InstanceOn(Partition& partition,
                                                         GraphPlace* refused) {
  if (Instance* const existing = Existing(partition)) return existing;
  DETSHARE_ASSIGN_OR_RETURN(
      std::unique_ptr<Graph> graph,
      coroutine_.device().InstantiateGraph(coroutine_.space(), partition, description_, refused));
  return &instances_.emplace_back(Instance{&partition, std::move(graph)});
}

absl::StatusOr<GpuGraph::Instance*> GpuGraph::FittingInstance(Partition& wanted,
                                                              GraphPlace* refused) {
  Partition& whole = coroutine_.whole();
  if (sms_ == GpuCoroutine::kAllSms || &wanted == &whole) return InstanceOn(whole, refused);
  absl::StatusOr<Instance*> instance = InstanceOn(wanted, refused);
  if (instance.ok() || !DoesNotFitPartition(instance.status())) return instance;
  instance = InstanceOn(whole, refused);
  if (instance.ok()) sms_ = GpuCoroutine::kAllSms;
  return instance;
}

void GpuGraph::Want(Partition& partition) {
  const bool fits = sms_ <= partition.sm_count() || &partition == &coroutine_.whole();
  const bool reached = !coroutine_.space().bound() || coroutine_.IsInGroup(partition);
  if (!fits || !reached || Existing(partition) != nullptr ||
      std::find(wanted_.begin(), wanted_.end(), &partition) != wanted_.end()) {
    return;
  }
  wanted_.push_back(&partition);
  coroutine_.AddUnready(*this);
}

absl::Status GpuGraph::LeaveOtherGroup() {
  if (left_other_group_ || !coroutine_.space().bound()) return absl::OkStatus();
  const auto is_outside = [&](const Partition& partition) {
    return !coroutine_.IsInGroup(partition);
  };
  if (last_partition_ != nullptr && is_outside(*last_partition_) && !marked_) {
    if (marker_ == nullptr) {
      DETSHARE_ASSIGN_OR_RETURN(marker_, coroutine_.device().CreateMarker(/*timed=*/false));
    }
    DETSHARE_ASSIGN_OR_RETURN(marked_, coroutine_.MarkWork(last_stream_, *marker_));
    shared_ = true;
    // The work of a stream that is gone is complete.
    if (!marked_) last_partition_ = nullptr;
  }
  SubmitKept();
  std::erase_if(wanted_, [&](const Partition* partition) { return is_outside(*partition); });
  std::erase_if(instances_,
                [&](const Instance& instance) { return is_outside(*instance.partition); });
  left_other_group_ = true;
  return absl::OkStatus();
}

bool GpuGraph::CanStartOn(const Partition& partition) const {
  const bool urgent = &partition == coroutine_.device().urgent();
  for (const GraphBody& graph : description_.graphs) {
    for (const GraphNode& node : graph.nodes) {
      const auto* const kernel = std::get_if<KernelStep>(&node.step);
      if (kernel != nullptr && !kernel->kernel->CanStartIn(urgent)) return false;
    }
  }
  return true;
}

bool GpuGraph::MakeOneReady() {
  missed_ = 0;
  if (!LeaveOtherGroup().ok()) return false;
  if (wanted_.empty()) return false;
  Partition* const partition = wanted_.back();
  wanted_.pop_back();
  GraphPlace refused;
  // If this fails, the next launch that wants the instantiation requests it again.
  if (CanStartOn(*partition)) FittingInstance(*partition, &refused).status().IgnoreError();
  return !wanted_.empty();
}

Partition& GpuGraph::Choose() {
  SchedEntity* const entity = coroutine_.entity();
  if (entity == nullptr) return coroutine_.partition();
  known_ = {};
  Nanoseconds estimate = 0;
  if (entity->followed()) {
    known_ = entity->Look({code_, 0}, {blocks_, static_cast<Nanoseconds>(kernels_) * kGuess});
    estimate = known_.operation->Estimate(0);
  }
  using Kind = SchedEntity::Kind;
  return coroutine_.Holding(
      coroutine_.ForKind(entity->MayBeLong(estimate) ? Kind::kLong : Kind::kShort), sms_);
}

absl::StatusOr<GpuGraph::Instance*> GpuGraph::InstanceForLaunch(Partition& wanted,
                                                                GraphPlace* refused) {
  const SchedEntity* const entity = coroutine_.entity();
  if (entity == nullptr || Existing(wanted) != nullptr || instances_.empty()) {
    missed_ = 0;
    return FittingInstance(wanted, refused);
  }
  // Urgent work never waits for a launch in the ordinary group. The session has no turn for it there
  // beside other processes, and such waits may keep the device (docs/preemption.md).
  const bool must = &wanted == coroutine_.device().urgent();
  if ((must || ++missed_ > kMaxMissed) && CanStartOn(wanted)) {
    missed_ = 0;
    return FittingInstance(wanted, refused);
  }
  Want(wanted);
  Instance* const last = last_partition_ != nullptr ? Existing(*last_partition_) : nullptr;
  return last != nullptr ? last : &instances_.front();
}

absl::Status GpuGraph::Launch(StreamId stream, absl::Span<const uint64_t> values) {
  if (values.size() != value_count_)
    return InvalidValue("the launch needs one value for each signal and wait");
  DETSHARE_ASSIGN_OR_RETURN(const uint64_t serial, coroutine_.SerialOf(stream));

  GraphPlace refused;
  Partition& wanted = Choose();
  DETSHARE_RETURN_IF_ERROR(LeaveOtherGroup());
  absl::StatusOr<Instance*> instance = InstanceForLaunch(wanted, &refused);
  if (!instance.ok()) return instance.status();
  const bool same_stream = last_stream_ == serial;
  if (last_partition_ != nullptr && !same_stream) {
    shared_ = true;
    if (!marked_) instance = InstanceOn(*last_partition_, &refused);
    if (!instance.ok()) return instance.status();
  }
  absl::Status status = LaunchOn(**instance, stream, serial, values);
  Partition& whole = coroutine_.whole();
  if (!status.ok() && (*instance)->partition != &whole && DoesNotFitPartition(status) &&
      (same_stream || marked_ || last_partition_ == nullptr)) {
    instance = InstanceOn(whole, &refused);
    if (!instance.ok()) return instance.status();
    sms_ = GpuCoroutine::kAllSms;
    status = LaunchOn(**instance, stream, serial, values);
  }
  return status;
}

void GpuGraph::SubmitBefore(Queue& queue) {
  for (const Marker* const marker : awaited_) coroutine_.parking().Submit(*marker);
  if (!recorded_.empty() || !awaited_.empty() || sms_ > 1) coroutine_.parking().Submit(queue);
}

void GpuGraph::SubmitKept() {
  for (const Instance& instance : instances_) coroutine_.parking().Submit(*instance.graph);
}

absl::Status GpuGraph::LaunchOn(Instance& instance, StreamId stream, uint64_t serial,
                                absl::Span<const uint64_t> values) {
  if (shared_ && marker_ == nullptr) {
    DETSHARE_ASSIGN_OR_RETURN(marker_, coroutine_.device().CreateMarker(/*timed=*/false));
  }
  const bool must_wait = marked_ && serial != last_stream_ && instance.partition != last_partition_;
  const auto submit = [&](Queue& queue) -> absl::Status {
    SubmitBefore(queue);
    // The device orders launches of one instantiation as it gets them.
    if (serial != last_stream_ && instance.partition == last_partition_)
      coroutine_.parking().Submit(*instance.graph);
    if (must_wait) {
      DETSHARE_RETURN_IF_ERROR(queue.Wait(*marker_));
    }
    DETSHARE_RETURN_IF_ERROR(queue.LaunchGraph(coroutine_.space(), *instance.graph, values));
    last_partition_ = instance.partition;
    last_stream_ = serial;
    marked_ = false;
    if (!shared_) return absl::OkStatus();
    const absl::Status recorded = queue.Record(*marker_);
    marked_ = recorded.ok();
    return recorded;
  };
  DETSHARE_RETURN_IF_ERROR(coroutine_.Submit(stream, *instance.partition, submit,
                                             known_.operation != nullptr ? &known_ : nullptr,
                                             waits_));
  coroutine_.CountGraph(kernels_);
  for (bool* recorded : recorded_) *recorded = true;
  return absl::OkStatus();
}

absl::Status GpuGraph::Upload(StreamId stream) {
  GraphPlace refused;
  Partition& wanted = Choose();
  DETSHARE_RETURN_IF_ERROR(LeaveOtherGroup());
  DETSHARE_ASSIGN_OR_RETURN(Instance* const instance, InstanceForLaunch(wanted, &refused));
  const absl::Status status = coroutine_.Submit(stream, *instance->partition, [&](Queue& queue) {
    return queue.UploadGraph(coroutine_.space(), *instance->graph);
  });
  if (status.ok()) coroutine_.CountOther();
  return status;
}

// ---- changes

absl::Status GpuGraph::Apply(GraphPlace place, const GraphNode& now) {
  if (const auto* const kernel = std::get_if<KernelStep>(&now.step); kernel != nullptr)
    coroutine_.BindFor(*kernel->kernel);
  DETSHARE_RETURN_IF_ERROR(LeaveOtherGroup());
  SubmitKept();
  if (instances_.empty()) {
    GraphPlace refused;
    DETSHARE_RETURN_IF_ERROR(InstanceOn(coroutine_.whole(), &refused).status());
  }
  // The instantiation that was launched last must accept the change, because it keeps the order of
  // launches. Others can be instantiated again.
  Instance* latest = &instances_.front();
  for (Instance& instance : instances_) {
    if (instance.partition == last_partition_) latest = &instance;
  }
  DETSHARE_RETURN_IF_ERROR(latest->graph->Replace(place, now));
  Partition* const kept = latest->partition;
  std::erase_if(instances_, [&](Instance& instance) {
    return instance.partition != kept && !instance.graph->Replace(place, now).ok();
  });
  return absl::OkStatus();
}

absl::Status GpuGraph::Replace(GraphPlace place, GraphNode now) {
  const GraphNode* const node = Find(place);
  if (node == nullptr) return InvalidValue("no such node");
  if (node->step.index() != now.step.index() || !SameConditional(*node, now)) {
    return InvalidValue("the node is of another kind");
  }
  DETSHARE_RETURN_IF_ERROR(Apply(place, now));
  bytes_ += BytesOf(now) - BytesOf(*node);
  const bool counts = node->enabled != now.enabled ||
                      std::holds_alternative<RecordStep>(now.step) ||
                      std::holds_alternative<WaitMarkerStep>(now.step);
  description_.graphs[place.graph].nodes[place.node] = std::move(now);
  if (counts) CountAgain();
  return absl::OkStatus();
}

absl::Status GpuGraph::SetEnabled(GraphPlace place, bool enabled) {
  const GraphNode* const node = Find(place);
  if (node == nullptr) return InvalidValue("no such node");
  if (node->enabled == enabled) return absl::OkStatus();
  GraphNode now = *node;
  now.enabled = enabled;
  return Replace(place, std::move(now));
}

GpuGraph::Update GpuGraph::Become(GraphDescription description) {
  if (description.graphs.size() != description_.graphs.size() ||
      description.use_node_priority != description_.use_node_priority) {
    return {UpdateResult::kTopologyChanged, {}};
  }
  for (uint32_t graph = 0; graph < description.graphs.size(); ++graph) {
    const GraphBody& now = description.graphs[graph];
    const GraphBody& before = description_.graphs[graph];
    if (now.nodes.size() != before.nodes.size() || now.edges != before.edges) {
      return {UpdateResult::kTopologyChanged, {graph, GraphPlace::kNone}};
    }
    for (uint32_t node = 0; node < now.nodes.size(); ++node) {
      if (now.nodes[node].step.index() != before.nodes[node].step.index()) {
        return {UpdateResult::kNodeTypeChanged, {graph, node}};
      }
      if (!SameConditional(now.nodes[node], before.nodes[node])) {
        return {UpdateResult::kTopologyChanged, {graph, node}};
      }
    }
  }
  std::vector<GraphPlace> changed;
  for (uint32_t graph = 0; graph < description.graphs.size(); ++graph) {
    for (uint32_t node = 0; node < description.graphs[graph].nodes.size(); ++node) {
      const GraphPlace place{graph, node};
      const GraphNode& now = description.graphs[graph].nodes[node];
      if (now == *Find(place)) continue;
      if (Apply(place, now).ok()) {
        changed.push_back(place);
        continue;
      }
      // The device accepted the old nodes before, so it accepts them again.
      for (const GraphPlace& done : changed) Apply(done, *Find(done)).IgnoreError();
      return {UpdateResult::kParametersChanged, place};
    }
  }
  description_ = std::move(description);
  CountAgain();
  return {};
}

}  // namespace detshare
