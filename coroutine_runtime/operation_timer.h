// Measures how long operations run on the device: samples for the durations that the daemon learns
// (durations.h), and all operations while a trace is taken (trace_ring.h).
//
//     Run:    queue: Record(begin), operation, Record(end)
//     Cover:  the stream's fence is behind `end`
//     Take:   for operations whose fence is reached: asks the device for the time from `begin` to
//             `end`, and adds it to the durations and the trace
//
// Ownership: owns its markers. The device and the binding outlive the timer. Threading: the
// coroutine's thread. No call waits for the GPU. Run() allocates nothing for an operation that is
// not measured, and little for the others: it keeps markers for reuse.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "coroutine_runtime/binding.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/durations.h"
#include "coroutine_runtime/fence_pool.h"
#include "coroutine_runtime/logical_stream.h"
#include "coroutine_runtime/trace_event.h"

namespace detshare {

class OperationTimer {
 public:
  OperationTimer(Device& device, const Binding& binding);
  OperationTimer(const OperationTimer&) = delete;
  OperationTimer& operator=(const OperationTimer&) = delete;

  // Calls `submit`, which puts one operation of the stream on `queue`, and returns its status.
  // Measures the operation if `known` asks for a sample or `name` is not empty. `known`: the
  // entity's knowledge about the operation, may be null. `name`: its name in the trace, empty if no
  // trace is taken. Both require an entity. `queue` is of `partition`.
  absl::Status Run(LogicalStream& stream, Queue& queue, const Partition& partition,
                   const DurationCache::Lookup* known, std::string_view name,
                   absl::FunctionRef<absl::Status()> submit) {
    if (name.empty() && (known == nullptr || !known->sample)) [[likely]]
      return submit();
    return Measure(stream, queue, partition, known, name, submit);
  }
  // `point` is behind all work of the stream that was submitted before. A point without a fence
  // gives up the times of operations that are not complete at the next Take().
  void Cover(const LogicalStream& stream, const FencePoint& point);
  // Takes the times of operations whose point is reached, those of a stream in its order. Requires
  // an entity.
  void Take();
  // The operation that is being submitted waits in the device. Its time would include the wait.
  void NoteWait() { ++waits_; }
  // Drops the operations whose times were not taken.
  void Forget();
  // Whether there are operations whose times were not taken.
  bool empty() const { return samples_.empty(); }

 private:
  // An operation between two markers.
  struct Sample {
    const LogicalStream* stream = nullptr;  // null once `point` is behind the operation
    FencePoint point;
    std::shared_ptr<OperationDurations> operation;  // null if it is measured for a trace only
    int size_class = 0;
    bool contended = false;
    std::unique_ptr<Marker> begin, end;
    TraceEvent event;  // its name is 0 if it is not traced
  };

  absl::Status Measure(LogicalStream& stream, Queue& queue, const Partition& partition,
                       const DurationCache::Lookup* known, std::string_view name,
                       absl::FunctionRef<absl::Status()> submit);
  // Takes a spare marker or creates one. Null if the device creates none.
  std::unique_ptr<Marker> TakeMarker();
  void KeepMarkers(Sample& sample);
  void NoteTime(const Sample& sample, Nanoseconds time);
  // Adds the operation to the entity's trace.
  void TraceOperation(const Sample& sample, Nanoseconds time);
  // When the operation began, by the daemon's clock: not before it was submitted. Nullopt if that is
  // not known.
  std::optional<Nanoseconds> BeginOf(const Sample& sample, const TraceReference& reference,
                                     Nanoseconds time);

  Device& device_;
  const Binding& binding_;
  std::vector<Sample> samples_;
  uint64_t waits_ = 0;  // calls of NoteWait()
  std::vector<std::unique_ptr<Marker>> spare_markers_;
  // On a device with virtual time: for each stream, by its serial, the end of its latest operation
  // in the trace.
  std::map<uint64_t, Nanoseconds> ends_;
};

}  // namespace detshare
