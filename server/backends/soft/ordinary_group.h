// Which process's ordinary kernels make progress on a card that several processes share.
//
// On a real GPU each process has an ordinary time-slice group with a slice that is shorter than it
// takes to load the group's state (docs/preemption.md). Two such groups that both have work make no
// progress, and none makes progress beside urgent kernels, which run until they end. A group that
// keeps the device (Device::KeepOrdinary) has a longer slice, and progresses:
//
//     urgent kernels, or ordinary kernels of | this process keeps | its ordinary kernels
//     other processes, are there             | the device         |
//     ---------------------------------------+--------------------+---------------------
//     no                                     | yes or no          | progress
//     yes                                    | yes                | progress
//     yes                                    | no                 | stand still
//
// So work that does not wait for its turn (coroutine_runtime/device_turn.h) stops here as it does there,
// and so does work beside an urgent kernel that waits for it.
// Virtual time does not know of it.
#pragma once

#include <cstdint>

#include "proto/mutex.h"
#include "server/backends/soft/card_processes.h"

namespace detshare::soft {

// Threading: any thread.
class OrdinaryGroup {
 public:
  // `processes` outlives the object.
  explicit OrdinaryGroup(const CardProcesses& processes) : processes_(processes) {}
  OrdinaryGroup(const OrdinaryGroup&) = delete;
  OrdinaryGroup& operator=(const OrdinaryGroup&) = delete;

  // Whether this process has ordinary kernels, running or standing still.
  void SetWorks(bool works) { Set(kWorks, works); }
  // Whether this process has urgent kernels.
  void SetUrgentWorks(bool works) { Set(kUrgentWorks, works); }
  // As Device::KeepOrdinary().
  void Keep(bool keep) {
    const MutexLock lock(&mutex_);
    keepers_ += keep ? 1 : -1;
    Set(kKeeps, keepers_ > 0);
  }
  // Whether its ordinary kernels progress now.
  bool Progresses() const {
    const uint32_t own = processes_.own().groups.load();
    if ((own & kKeeps) != 0) return true;
    bool alone = (own & kUrgentWorks) == 0;
    processes_.ForEachOther([&](const CardProcesses::Words& words) {
      alone = alone && (words.groups.load() & (kWorks | kUrgentWorks)) == 0;
    });
    return alone;
  }

 private:
  static constexpr uint32_t kWorks = 1, kKeeps = 2, kUrgentWorks = 4;

  void Set(uint32_t bit, bool value) {
    std::atomic<uint32_t>& word = processes_.own().groups;
    if (value) {
      word.fetch_or(bit);
    } else {
      word.fetch_and(~bit);
    }
  }

  const CardProcesses& processes_;
  Mutex mutex_;
  int keepers_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace detshare::soft
