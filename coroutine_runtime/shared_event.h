// An event that several sessions record and wait for. It has one marker of the device, a count of
// recordings, and the highest recording that is reached.
//
//     Record (any session):  marker moves, number = ++recorded
//     when the work before it is complete:  reached = max(reached, number)
//     Complete:  reached >= recorded: the state is that of the last recording
//
// The recording session reports a reached recording as soon as it checks. A session whose stream
// has waited may ask before that, so Complete also asks the device.
//
// Lifetime: ends with its last user, before its device. Threading: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "proto/mutex.h"

namespace detshare {

class SharedEvent {
 public:
  static absl::StatusOr<std::shared_ptr<SharedEvent>> Create(Device& device);

  Device& device() const { return device_; }

  // Records the marker at this point of `queue`, which is of the event's device. `urgent`: the queue is
  // of the urgent time-slice group. The recording session reports when the point is reached, or lost
  // with the session.
  absl::Status Record(Queue& queue, bool urgent, uint64_t* number);
  void Reach(uint64_t number);
  // Blocks `queue`, of any device of the backend, until the last recording's point. No wait if
  // there is no recording.
  absl::Status Wait(Queue& queue);

  // The number of the last recording (0 if there is none), and the highest number that is reached,
  // which can be waited for as a fence. Release: the work before the recording happened before.
  uint64_t recorded() const { return recorded_.load(std::memory_order_acquire); }
  const std::atomic<uint64_t>& reached() const { return reached_; }
  // Whether the last recording is of urgent work. True if there is none.
  bool RecordedUrgent();
  // Whether the last recording is complete, or there is none. Errors are the device's.
  absl::StatusOr<bool> Complete();

 private:
  SharedEvent(Device& device, std::unique_ptr<Marker> marker)
      : device_(device), marker_(std::move(marker)) {}

  Device& device_;
  Mutex mutex_;  // makes a recording one step for waiting sessions
  const std::unique_ptr<Marker> marker_;
  bool recorded_urgent_ ABSL_GUARDED_BY(mutex_) = true;
  std::atomic<uint64_t> recorded_{0};  // changed under mutex_
  std::atomic<uint64_t> reached_{0};
};

}  // namespace detshare
