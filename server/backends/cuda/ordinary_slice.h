// The time slice of the ordinary group of a process.
//
// Normally it is the shortest one, so that the group gives way to urgent work at once. Only the
// process whose turn it is has ordinary work (coroutine_runtime/device_turn.h): two groups with
// short slices that both have work make no progress, and none makes progress beside an urgent kernel
// that does not end. Some calls of the driver have work of their own
// outside of any turn: they upload code, create and destroy green contexts, and wait until the group
// is idle. While such a call runs, the slice is longer, so that its work proceeds beside the turn of
// another process.
//
//     slice        | while
//     -------------+------------------------------------------------
//     1 us         | none of the following
//     500 us       | calls of the driver run and other processes have work
//                  | the process has its turn beside work that overruns, or its work stands still
//                  | (Keep)
//     2,048 us     | programs that are not the daemon's have work, or there are graphs with conditional
//                  | nodes (Share)
//
// Threading: any thread. Each change of the slice takes some 100 us, and waits for graphs with conditional
// nodes (graph_gate.h). While the kernel module handles a fault of any process it takes up to 200 ms, again
// and again for two seconds. So a thread of the object changes the slice for Keep(), which workers call
// between launches.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "proto/mutex.h"

namespace detshare::cuda {

class OrdinarySlice {
 public:
  static constexpr std::chrono::microseconds kShort{1};
  // Much longer than it takes the hardware to load a group's state, and short for urgent work that
  // waits.
  static constexpr std::chrono::microseconds kLonger{500};
  // libcuda's own value.
  static constexpr std::chrono::microseconds kDefault{2'048};

  // `set` sets the group's slice, which is kShort at first. One thread calls it at a time.
  explicit OrdinarySlice(std::function<void(std::chrono::microseconds)> set);
  ~OrdinarySlice();
  OrdinarySlice(const OrdinarySlice&) = delete;
  OrdinarySlice& operator=(const OrdinarySlice&) = delete;

  // `others_work` tells whether other processes have work on the GPU. Null: nobody knows, so they
  // may have. Does not return while the function before is called.
  void ShareWith(std::function<bool()> others_work);

  // As Device::KeepOrdinary(). The slice is longer while anybody keeps the device. Returns at once; the
  // slice changes a moment later.
  void Keep(bool keep);
  // The group has the driver's own slice until as many calls with `share` false: as
  // Device::ShareOrdinary(), and while there are graphs that need it (graph_order.h).
  void Share(bool share);

  // A call of the driver whose work belongs to no turn, while the object exists.
  class Call {
   public:
    // Null: the process shares the GPU with no other, so nothing is done.
    explicit Call(OrdinarySlice* slice)
        : slice_(slice != nullptr && slice->Begin() ? slice : nullptr) {}
    ~Call() {
      if (slice_ != nullptr) slice_->End();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    OrdinarySlice* const slice_;
  };

 private:
  // Returns whether the call counts.
  bool Begin();
  void End();
  void Apply() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The thread: applies what Keep() has changed.
  void Run();

  const std::function<void(std::chrono::microseconds)> set_;
  // Relaxed: keep_mutex_ publishes it to the thread. Another one that reads it late sets a slice that the
  // thread then corrects.
  std::atomic<int> keepers_{0};
  Mutex keep_mutex_;  // never held while the slice changes
  CondVar kept_;
  bool changed_ ABSL_GUARDED_BY(keep_mutex_) = false;  // keepers_, for the thread
  bool stop_ ABSL_GUARDED_BY(keep_mutex_) = false;
  Mutex mutex_;
  std::function<bool()> others_work_ ABSL_GUARDED_BY(mutex_);
  int sharers_ ABSL_GUARDED_BY(mutex_) = 0;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::chrono::microseconds now_ ABSL_GUARDED_BY(mutex_) = kShort;
  std::thread thread_;  // begins when all else is there
};

}  // namespace detshare::cuda
