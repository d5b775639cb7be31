#include "coroutine_runtime/operation_timer.h"

#include <algorithm>
#include <utility>

namespace detshare {
namespace {

// Operations that are measured at a time for the durations.
constexpr size_t kMaxSamples = 32;
// Operations that are measured at a time while a trace is taken.
constexpr size_t kMaxTraced = 2048;
// Operations whose time is read at once. Reading one takes microseconds, in which the worker submits
// nothing.
constexpr int kMaxTaken = 4;

}  // namespace

OperationTimer::OperationTimer(Device& device, const Binding& binding)
    : device_(device), binding_(binding) {
  samples_.reserve(kMaxSamples);
  spare_markers_.reserve(2 * kMaxSamples);
}

absl::Status OperationTimer::Measure(LogicalStream& stream, Queue& queue,
                                     const Partition& partition, const DurationCache::Lookup* known,
                                     std::string_view name,
                                     absl::FunctionRef<absl::Status()> submit) {
  // The time of an operation that waits for its client would include the wait.
  const bool sampled =
      known != nullptr && known->sample && samples_.size() < kMaxSamples && !stream.IsParked();
  if (!sampled && name.empty()) return submit();
  SchedEntity& entity = *binding_.entity();
  if (samples_.size() >= kMaxTraced) {
    entity.trace().Lose();
    return submit();
  }
  Sample sample;
  sample.stream = &stream;
  if (sampled) sample.operation = known->operation->shared_from_this();
  sample.size_class = entity.SizeClass(partition);
  sample.contended = entity.contended();
  if (!name.empty()) {
    sample.event.name = entity.trace().Name(name);
    sample.event.stream = stream.serial;
    sample.event.first_sm = static_cast<uint16_t>(partition.first_sm());
    sample.event.sm_count = static_cast<uint16_t>(partition.sm_count());
    sample.event.urgent = &partition == device_.urgent();
    sample.event.submitted = entity.Now();
  }
  sample.begin = TakeMarker();
  sample.end = TakeMarker();
  if (sample.begin == nullptr || sample.end == nullptr) return submit();
  const bool begun = queue.Record(*sample.begin).ok();
  const uint64_t waits = waits_;
  absl::Status status = submit();
  if (waits != waits_) sample.operation = nullptr;
  const bool wanted = sample.operation != nullptr || sample.event.name != 0;
  if (begun && wanted && status.ok() && queue.Record(*sample.end).ok()) {
    samples_.push_back(std::move(sample));
  } else {
    KeepMarkers(sample);
  }
  return status;
}

std::unique_ptr<Marker> OperationTimer::TakeMarker() {
  if (spare_markers_.empty()) {
    absl::StatusOr<std::unique_ptr<Marker>> made = device_.CreateMarker(/*timed=*/true);
    return made.ok() ? *std::move(made) : nullptr;
  }
  std::unique_ptr<Marker> marker = std::move(spare_markers_.back());
  spare_markers_.pop_back();
  return marker;
}

void OperationTimer::KeepMarkers(Sample& sample) {
  spare_markers_.push_back(std::move(sample.begin));
  spare_markers_.push_back(std::move(sample.end));
}

void OperationTimer::Cover(const LogicalStream& stream, const FencePoint& point) {
  for (Sample& sample : samples_) {
    if (sample.stream != &stream) continue;
    sample.stream = nullptr;
    sample.point = point;
  }
}

void OperationTimer::Take() {
  int taken = 0;
  size_t kept = 0;
  for (size_t i = 0; i < samples_.size(); ++i) {
    Sample& sample = samples_[i];
    if (taken == kMaxTaken || sample.stream != nullptr || !sample.point.reached()) {
      if (kept != i) samples_[kept] = std::move(sample);
      ++kept;
      continue;
    }
    const absl::StatusOr<float> elapsed = device_.ElapsedMilliseconds(*sample.begin, *sample.end);
    if (elapsed.ok()) NoteTime(sample, static_cast<Nanoseconds>(*elapsed * policy::kMillisecond));
    ++taken;
    KeepMarkers(sample);
  }
  samples_.resize(kept);
}

void OperationTimer::NoteTime(const Sample& sample, Nanoseconds time) {
  SchedEntity& entity = *binding_.entity();
  if (sample.event.name != 0) TraceOperation(sample, time);
  entity.NoteTime(time);
  // A kernel that waits for its client took as long as the client had to wait for its turn.
  if (sample.operation != nullptr && !entity.MayHaveAwaitedPass()) {
    sample.operation->Add(sample.size_class, time, sample.contended || entity.contended());
  }
}

void OperationTimer::TraceOperation(const Sample& sample, Nanoseconds time) {
  SchedEntity& entity = *binding_.entity();
  const std::shared_ptr<const TraceReference>& reference = entity.assignment().trace;
  if (reference == nullptr) {
    ends_.clear();
    return;
  }
  const std::optional<Nanoseconds> begin = BeginOf(sample, *reference, time);
  if (!begin.has_value()) return;
  TraceEvent event = sample.event;
  event.kind = TraceEvent::Kind::kOperation;
  event.at = *begin;
  event.duration = time;
  entity.trace().Add(event);
}

std::optional<Nanoseconds> OperationTimer::BeginOf(const Sample& sample,
                                                   const TraceReference& reference,
                                                   Nanoseconds time) {
  if (device_.properties().virtual_time) {
    Nanoseconds& end = ends_[sample.event.stream];
    const Nanoseconds begin = std::max(sample.event.submitted, end);
    end = begin + time;
    return begin;
  }
  const TraceReference::Point& point = reference.Of(sample.event.urgent);
  const absl::StatusOr<float> since = device_.ElapsedMilliseconds(*point.marker, *sample.begin);
  if (!since.ok()) return std::nullopt;
  // The reference is precise to some microseconds only.
  return std::max(sample.event.submitted,
                  point.at + static_cast<Nanoseconds>(double{*since} * policy::kMillisecond));
}

void OperationTimer::Forget() {
  // The markers are kept, because the device may still reach them.
  for (Sample& sample : samples_) KeepMarkers(sample);
  samples_.clear();
}

}  // namespace detshare
