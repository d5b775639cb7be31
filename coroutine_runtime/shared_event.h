// An event that several sessions record and wait for: one marker of the device, and a count of
// recordings with how far they are complete.
//
//     Record (any session):  marker moves, number = ++recorded
//     when the work before it is complete:  reached = max(reached, number)
//     Complete:  reached >= recorded: the state is that of the last recording
//
// The session that recorded says what is reached, as soon as it looks. Whoever's stream has waited
// may ask before that, so Complete asks the device.
//
// Ends with its last user, before its device. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"

namespace detshare {

class SharedEvent {
 public:
  static absl::StatusOr<std::shared_ptr<SharedEvent>> Create(Device& device);

  Device& device() const { return device_; }

  // Puts the marker at this point of `queue`, of the event's device. Whoever records says when the
  // point is reached, or lost with its session.
  absl::Status Record(Queue& queue, uint64_t* number);
  void Reach(uint64_t number);
  // Holds `queue`, of any device of the backend, until the last recording's point. None: no wait.
  absl::Status Wait(Queue& queue);

  // The number of the last recording, 0 when there is none, and the highest that is reached, to
  // be waited for as a fence. Release: what the recording stands for happened before.
  uint64_t recorded() const { return recorded_.load(std::memory_order_acquire); }
  const std::atomic<uint64_t>& reached() const { return reached_; }
  // Whether the last recording is complete, or there is none. Errors are the device's.
  absl::StatusOr<bool> Complete();

 private:
  SharedEvent(Device& device, std::unique_ptr<Marker> marker)
      : device_(device), marker_(std::move(marker)) {}

  Device& device_;
  std::mutex mutex_;  // a recording is one step for those who wait
  const std::unique_ptr<Marker> marker_;
  std::atomic<uint64_t> recorded_{0};  // changes with mutex_
  std::atomic<uint64_t> reached_{0};
};

}  // namespace detshare
