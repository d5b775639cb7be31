// Which process's ordinary kernels make progress on a card that several processes share.
//
// On a real GPU each process has an ordinary time-slice group with a slice that is shorter than it
// takes to load the group's state (docs/preemption.md). Two such groups that both have work make no
// progress. A group that keeps the device (Device::KeepOrdinary) has a longer slice, and progresses:
//
//     other processes have ordinary kernels | this one keeps the device | its kernels
//     --------------------------------------+---------------------------+-------------
//     no                                    | yes or no                 | progress
//     yes                                   | yes                       | progress
//     yes                                   | no                        | stand still
//
// So work that does not wait for its turn (coroutine_runtime/device_turn.h) stops here as it does there.
// Virtual time does not know of it.
#pragma once

#include <cstdint>

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
  void Keep(bool keep) { Set(kKeeps, keep); }
  // Whether its ordinary kernels progress now.
  bool Progresses() const {
    if ((processes_.own().ordinary.load() & kKeeps) != 0) return true;
    bool alone = true;
    processes_.ForEachOther([&](const CardProcesses::Words& words) {
      alone = alone && (words.ordinary.load() & kWorks) == 0;
    });
    return alone;
  }

 private:
  static constexpr uint32_t kWorks = 1, kKeeps = 2;

  void Set(uint32_t bit, bool value) {
    std::atomic<uint32_t>& word = processes_.own().ordinary;
    if (value) {
      word.fetch_or(bit);
    } else {
      word.fetch_and(~bit);
    }
  }

  const CardProcesses& processes_;
};

}  // namespace detshare::soft
