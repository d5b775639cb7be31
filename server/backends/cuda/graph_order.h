// Keeps graphs with conditional nodes apart from all other graphs of a time-slice group: while one of
// them runs, no other graph does. Kernels, copies and fills outside of graphs run beside them.
//
// The driver (580, H200) ends a context with CUDA_ERROR_LAUNCH_FAILED otherwise: after about a thousand
// launches beside another session's plain graphs, and nearly at once if several graphs with
// conditional nodes run, also natively in the threads of one process. The kernel's log then has
// Xid 13, SKEDCHECK22_INVALIDATE_ACTIVE_QMD.
//
// The order is the device's: a stream waits for an event behind each graph beside which its own must
// not run. Launches of plain graphs take no lock and record no event while no session of the group
// has a graph with conditional nodes.
//
// A graph that waits for its client delays such graphs of all streams. So a program stands still
// whose client lets the one go on only after the other.
#pragma once

#include <atomic>
#include <vector>

#include "absl/functional/function_ref.h"
#include "proto/mutex.h"
#include "server/backends/cuda/driver_api.h"

namespace detshare::cuda {

class CudaGroup;

// Any thread may call it, with the group's context current. Its events end with the context.
class GraphOrder {
 public:
  explicit GraphOrder(CudaGroup& group) : group_(group) {}

  // Counts a graph with conditional nodes. Call it before the graph's first launch, outside of
  // submissions. Waits for submissions that have begun, but not for the GPU.
  void AddConditional();
  // Call it when the graph has ended.
  void RemoveConditional();

  // Calls `call`, which launches or uploads a graph in `stream`, behind the graphs beside which the
  // graph must not run. Returns the error of the call or of the waits.
  CUresult Submit(CUstream stream, bool conditional, absl::FunctionRef<CUresult()> call) {
    if (!conditional && !applies_.load()) [[likely]]
      return call();
    return SubmitInOrder(stream, conditional, call);
  }

 private:
  // Graphs of one kind that were submitted to one stream.
  struct InFlight {
    CUstream stream;  // may have ended
    bool conditional;
    CUevent end;  // behind the last of them
  };

  CUresult SubmitInOrder(CUstream stream, bool conditional, absl::FunctionRef<CUresult()> call);
  // Forgets graphs that have ended.
  void Prune() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Notes a graph behind which nothing was submitted to the stream.
  CUresult Note(CUstream stream, bool conditional) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  CudaGroup& group_;
  // Whether there are graphs with conditional nodes. Sequentially consistent with
  // StreamState::entering: a thread that launches a graph first stores `entering` and then reads
  // this; AddConditional() first stores this and then reads `entering` and `submitted`.
  std::atomic<bool> applies_{false};
  Mutex counting_;  // before mutex_
  int conditional_graphs_ ABSL_GUARDED_BY(counting_) = 0;
  Mutex mutex_;
  std::vector<InFlight> in_flight_ ABSL_GUARDED_BY(mutex_);
  std::vector<CUevent> spare_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::cuda
