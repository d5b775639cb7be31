// Keeps changes of time slices apart from graphs with conditional nodes, over all processes of the daemon
// on one GPU: while such a graph is in flight, no slice changes, and while one changes, none is launched.
//
// The driver (580, H200) ends the context of such a graph with CUDA_ERROR_LAUNCH_FAILED otherwise, also if
// the slice is that of another process without work, and if it gets the value that it had. So does
// cuCtxDestroy() in another process (docs/architecture.md). The hardware must switch between contexts
// meanwhile; it does nothing to other graphs.
//
// Nobody waits for long: not for a graph that takes longer than kMaxGraph, nor for a process that is dead,
// broken or hostile. The context is then at risk. For kIgnored after that, nobody waits for that process.
//
// Threading: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/functional/function_ref.h"
#include "coroutine_runtime/clock.h"
#include "coroutine_runtime/engine_page.h"
#include "proto/mutex.h"

namespace detshare::cuda {

class SliceGate {
 public:
  // How long a change waits for graphs, and how long a graph waits for changes, in nanoseconds. A change
  // itself takes up to half a millisecond.
  static constexpr int64_t kMaxGraph = 100'000'000, kMaxChange = 500'000'000;
  static constexpr int64_t kIgnored = 1'000'000'000;
  // How long a change waits for the graphs of processes that this one does not know yet.
  static constexpr int64_t kUnknown = 5'000'000;

  // `own` are this process's words for the GPU. `peers` are the other processes, which have the GPU under
  // the number `device`; null: there are none. All arguments outlive the object.
  SliceGate(SliceWords& own, const EnginePeers* peers, size_t device, const Clock& clock)
      : own_(own), peers_(peers), device_(device), clock_(clock) {}
  SliceGate(const SliceGate&) = delete;
  SliceGate& operator=(const SliceGate&) = delete;

  // Lets a graph with conditional nodes be launched, until Leave(). False: a slice changes now. The caller
  // has waited for `waited` nanoseconds, and calls again.
  bool Enter(int64_t waited);
  // The launch is made, or will not be.
  void Leave() { own_.entering.fetch_sub(1); }

  // Counts a launch in the time-slice group `group`, below SliceWords::kGroups. Call it between Enter() and
  // Leave(), and for one launch of a group at a time. When the graph has ended, the GPU must write the
  // result to ended(group), in the order of launches; if there is no launch after all, too.
  uint64_t Count(size_t group);
  const std::atomic<uint64_t>& ended(size_t group) const { return own_.ended[group]; }

  // Waits until no graph with conditional nodes is in flight, and calls `change`.
  void Change(absl::FunctionRef<void()> change);

 private:
  // The words of this process or another one. Own: 0.
  using Test = absl::FunctionRef<bool(const SliceWords& words)>;
  // Whether the test holds for a process that is not ignored. If the caller has waited for `max`, it
  // ignores them from now on.
  bool Any(int64_t waited, int64_t max, Test test);

  SliceWords& own_;
  const EnginePeers* const peers_;
  const size_t device_;
  const Clock& clock_;
  Mutex changing_;  // one change at a time; before mutex_
  Mutex mutex_;
  // Until when a process is ignored, by its id. Of this process: 0.
  std::map<uint64_t, int64_t> ignored_until_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::cuda
