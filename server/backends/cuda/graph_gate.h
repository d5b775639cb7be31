// Keeps graphs with conditional nodes apart from what would end their context on one GPU: while such a
// graph is in flight, none of that happens, and while it happens, no such graph is launched.
//
//     what                                                        | graphs of
//     ------------------------------------------------------------+--------------------------------
//     a time slice changes, a context is destroyed, or it gets
//     more local memory or another limit: Change()                | all processes of the daemon
//     host memory is registered or unregistered: ChangeHere()     | this process, in both groups
//     a hold runs (cuda_hold.h): Closed(), EndHolds()             | the urgent group of this process
//
// Otherwise the driver (580, H200) ends the context with CUDA_ERROR_LAUNCH_FAILED, also if a slice is that
// of another process without work, and if it gets the value that it had (docs/architecture.md). The
// hardware must switch between contexts meanwhile; it does nothing to other graphs.
//
// Nobody waits for long: not for a graph that takes longer than kMaxGraph, nor for a process that is dead,
// broken or hostile. The context is then at risk. For kIgnored after that, changes do not wait for the graphs
// of that process, or graphs not for its changes.
//
// Threading: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/functional/function_ref.h"
#include "coroutine_runtime/clock.h"
#include "coroutine_runtime/engine_page.h"
#include "proto/mutex.h"

namespace detshare::cuda {

class GraphGate {
 public:
  // How long a change waits for graphs, and how long a graph waits for changes, in nanoseconds. Urgent work
  // that does not end stops a graph for 100 ms before it pauses (policy/best_effort_limits.h). A change
  // itself takes up to half a millisecond.
  static constexpr int64_t kMaxGraph = 250'000'000, kMaxChange = 500'000'000;
  static constexpr int64_t kIgnored = 1'000'000'000;

  // `own` are this process's words for the GPU. `peers` are the other processes, which have the GPU under
  // the number `device`; null: there are none. All arguments outlive the object.
  GraphGate(SliceWords& own, const EnginePeers* peers, size_t device, const Clock& clock)
      : own_(own), peers_(peers), device_(device), clock_(clock) {}
  GraphGate(const GraphGate&) = delete;
  GraphGate& operator=(const GraphGate&) = delete;

  // The time of its clock, in nanoseconds.
  int64_t now() const { return clock_.NowNanoseconds(); }

  // Lets a graph with conditional nodes be launched, until Leave(). False: something changes now, and not
  // by this thread. The caller has waited for `waited` nanoseconds, and calls again. A caller within its own
  // Change() must do so until it is let in: until then, its change keeps nobody from launching.
  bool Enter(int64_t waited);
  // The launch is made, or will not be.
  void Leave() { own_.entering.fetch_sub(1); }

  // Counts a launch in the time-slice group `group`, below SliceWords::kGroups. Call it between Enter() and
  // Leave(), and for one launch of a group at a time. When the graph has ended, the GPU must write the
  // result to ended(group), in the order of launches; if there is no launch after all, too.
  uint64_t Count(size_t group);
  const std::atomic<uint64_t>& ended(size_t group) const { return own_.ended[group]; }

  // Waits until no graph with conditional nodes is in flight in any process, and calls `change`, which may
  // change again, and Enter(). Several threads may change at a time: one that drains a context takes as long
  // as the context's kernels.
  void Change(absl::FunctionRef<void()> change);
  // The same for the graphs of this process. A launch that waits for one such change is made before the
  // next: a program may register memory again and again.
  void ChangeHere(absl::FunctionRef<void()> change);

  // Whether a graph of the group is in flight, or any is being launched. Sequentially consistent: a hold
  // is published before it asks; Enter() is called before EndHolds() looks for holds.
  bool Closed(size_t group) const;
  // `end` ends holds, and returns whether all of them have ended. Call it before there are graphs in the
  // urgent group.
  void HaveHolds(std::function<bool()> end) { end_holds_ = std::move(end); }
  // Ends the holds, between Enter() and Leave(), and waits until they have ended.
  void EndHolds();

 private:
  // For what somebody waits.
  enum Obstacle { kGraphs, kChanges };
  // Whether a process that is not ignored has it. If the caller has waited for `max`, it ignores those that
  // have it from now on. `own_entering`: how many of the launches that are being made are the caller's.
  bool Any(bool everywhere, Obstacle obstacle, int64_t waited, int64_t max,
           uint32_t own_entering = 0);
  // Waits until no graph is in flight, of any process or of this one, but not for ever.
  void Await(bool everywhere);
  // Waits until a launch that waits for changes of this process has been let in, but not for ever.
  void AwaitRefused() const;

  SliceWords& own_;
  const EnginePeers* const peers_;
  const size_t device_;
  const Clock& clock_;
  std::function<bool()> end_holds_;  // null: there are none
  // As SliceWords::changing, for ChangeHere().
  std::atomic<uint32_t> changing_here_{0};
  // A launch waits for a ChangeHere(), and none has been let in since. Tells further changes to wait:
  // between two changes of one thread the launch would hardly find the gate open.
  std::atomic<bool> refused_here_{false};
  Mutex mutex_;
  // Until when a process is ignored, by its id. Of this process: 0. Who runs long graphs may still change.
  std::map<std::pair<uint64_t, Obstacle>, int64_t> ignored_until_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::cuda
