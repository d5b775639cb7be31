// Keeps graphs with conditional nodes apart from all other graphs of a time-slice group: while one of
// them runs, no other graph does. Kernels, copies and fills outside of graphs run beside them.
//
// The driver (580, H200) ends a context with CUDA_ERROR_LAUNCH_FAILED otherwise, also natively in the
// threads of one process: after about a thousand launches beside another thread's plain graphs, and
// nearly at once if several graphs with conditional nodes run. The kernel's log then has Xid 13,
// SKEDCHECK22_INVALIDATE_ACTIVE_QMD.
//
// The order is the host's: a graph is launched when the others have ended. It does not suffice that
// its stream waits for them. While the hardware switches between contexts, the launch of such a graph
// ends the context if another one is in flight, wherever its stream stands: after 1,300 to 14,000
// launches with an event between any two, also with all of them in one stream, and also with 100 us
// between them. In 87,000 launches that waited on the host no context ended, and none in 181,000 with
// one graph, however often it is in flight. Neither does the driver bear the shortest time slice, with
// which the hardware stops the graph at any moment, nor a slice that changes meanwhile, also one of
// another process (graph_gate.h). So the ordinary group has the driver's own slice while there are such
// graphs.
//
// A launch waits in the session's thread. While a stream waits for its client or for a word of memory,
// the next graph's stream waits for the end of the graph instead: the writer may be the same thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/mutex.h"
#include "server/backends/cuda/driver_api.h"

namespace detshare::cuda {

class CudaAddressSpace;
class CudaGroup;

// Any thread may call it. Its events end with the context.
class GraphOrder {
 public:
  explicit GraphOrder(CudaGroup& group) : group_(group) {}

  // A launch or an upload.
  struct Launch {
    CUgraphExec executable;  // null: of unknown plain graphs
    CUstream stream;
    bool conditional;
  };

 private:
  struct Entry : Launch {
    CUevent end = nullptr;   // behind the graph; null: it is not launched yet
    uint64_t number = 0;     // of GraphGate::Count(); 0: it has none
    bool overtaken = false;  // by a launch of EnterIdle(), beside which it must not be made
  };
  using Entries = std::list<Entry>;

 public:
  // The right to make a launch. The graph that waits next may be launched when this one has ended, or
  // when its place is given up.
  class Place {
   public:
    Place(Place&& other) noexcept
        : order_(std::exchange(other.order_, nullptr)), entry_(other.entry_) {}
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (order_ != nullptr) order_->Forget(entry_);
    }
    // Whether the launch must not be made after all: give up the place, and enter again. Ask within the
    // submission.
    bool overtaken() const { return order_->Overtaken(entry_); }
    // Makes the stream wait for graphs that are still in flight. Waits itself while a time slice changes.
    // Call it in the submission, before the launch.
    CUresult Await() { return order_->WaitInStream(entry_); }
    // The driver has the launch.
    CUresult Launched() { return std::exchange(order_, nullptr)->Note(entry_); }

   private:
    friend GraphOrder;
    Place(GraphOrder& order, Entries::iterator entry) : order_(&order), entry_(entry) {}
    GraphOrder* order_;  // null: the place does not end with this object
    Entries::iterator entry_;
  };

  // Counts a graph with conditional nodes. Call it before the graph's first launch, outside of
  // submissions. Waits for submissions that have begun, but not for the GPU.
  void AddConditional();
  // Call it when the graph has ended.
  void RemoveConditional();

  // Whether plain graphs need a place. Ask within the submission.
  bool applies() const { return applies_.load(); }
  // Waits, outside of submissions, until no graph is in flight beside which the launch must not be
  // made, on behalf of `space`, or until one that is in flight may have to wait for this thread.
  // Launches go in the order in which they came. Returns the context's error if the context is lost,
  // and CUDA_ERROR_DEINITIALIZED if the space is abandoned.
  absl::StatusOr<Place> Enter(CudaAddressSpace& space, const Launch& launch);
  // The same in an idle moment of the group (IdleWindow), without waiting: the launch is made before those
  // that have come, also those that have a place. Who waits for such a moment may have no place meanwhile:
  // launches behind it would wait, too, and their clients may be those for which the moment waits.
  Place EnterIdle(const Launch& launch);

 private:
  // Whether the second must not be made while the first is in flight.
  static bool Conflict(const Launch& first, const Launch& second);
  // For what the entry has to wait.
  enum class Obstacle { kNone, kInFlight, kNotLaunched };
  Obstacle Before(Entries::const_iterator entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Overtaken(Entries::const_iterator entry);
  CUresult WaitInStream(Entries::iterator entry);
  Entries::iterator Add(const Launch& launch);
  // For a graph with conditional nodes, where the group has a gate.
  void EnterGate(Entry& entry);
  CUresult LeaveGate(const Entry& entry);
  // Forgets graphs that have ended.
  void Prune() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The launch is not made.
  void Forget(Entries::iterator entry);
  // Records the end of the launch, behind which nothing was submitted to its stream.
  CUresult Note(Entries::iterator entry);

  CudaGroup& group_;
  // Whether there are graphs with conditional nodes. Sequentially consistent with
  // StreamState::entering: a thread that launches a graph first stores `entering` and then reads
  // this; AddConditional() first stores this and then reads `entering` and `submitted`.
  std::atomic<bool> applies_{false};
  Mutex counting_;  // before mutex_
  int conditional_graphs_ ABSL_GUARDED_BY(counting_) = 0;
  Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);  // in the order in which they came
  std::vector<CUevent> spare_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::cuda
