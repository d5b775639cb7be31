// An event that several sessions record and wait for, on any devices of the backend. Its state is that of its
// last recording by any session.
//
// If the device has the point of a recording, a marker of the device stands for it until the next
// recording, and queues wait for the marker. If the daemon keeps the work before the point (parking.h),
// the device does not have it yet. Then other sessions wait until the recording session reports that
// the point is reached.
//
// Lifetime: ends with its last user, before the devices. Threading: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "proto/mutex.h"

namespace detshare {

class SharedRecording {
 public:
  SharedRecording(bool urgent, bool marked) : urgent_(urgent), marked_(marked) {}

  // Whether the work before the recording is in the urgent time-slice group.
  bool urgent() const { return urgent_; }
  // Whether the event's marker stood for it from the beginning.
  bool marked() const { return marked_; }
  // The point is reached, or lost with the recording session, which calls this as soon as it knows.
  void Reach() { reached_.store(1, std::memory_order_release); }
  // 1 after Reach(), so it can be waited for as a fence. Release: the work before the recording
  // happened before.
  const std::atomic<uint64_t>& reached() const { return reached_; }
  bool complete() const { return reached_.load(std::memory_order_acquire) != 0; }

 private:
  const bool urgent_, marked_;
  std::atomic<uint64_t> reached_{0};
};

class SharedEvent {
 public:
  static absl::StatusOr<std::shared_ptr<SharedEvent>> Create(Device& device);

  // Records the event at this point of `queue`, which is of `device`. `urgent`: the queue is of the urgent
  // time-slice group.
  absl::StatusOr<std::shared_ptr<SharedRecording>> Record(Device& device, Queue& queue,
                                                          bool urgent);
  // Records the event at a point that the device does not have yet.
  std::shared_ptr<SharedRecording> RecordKept(bool urgent);
  // The last recording; null if there is none.
  std::shared_ptr<SharedRecording> last();
  // Blocks `queue`, of any device of the backend, until the last recording's point, if the device has
  // it. Returns that recording; null if there is none. If it is not marked(), the caller has to wait
  // for reached().
  absl::StatusOr<std::shared_ptr<SharedRecording>> Wait(Queue& queue);
  // Whether the last recording is complete, or there is none. Asks the device, because a session whose
  // stream has waited may ask before the recording session has looked. Errors are the device's.
  absl::StatusOr<bool> Complete();

 private:
  SharedEvent() = default;

  Mutex mutex_;  // makes a recording one step for waiting sessions
  // Of the devices on which it was recorded, and of the one for which it was created.
  std::map<Device*, std::unique_ptr<Marker>> markers_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<SharedRecording> last_ ABSL_GUARDED_BY(mutex_);
  // Of the last recording, if it is marked().
  Device* device_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace detshare
