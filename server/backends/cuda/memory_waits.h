// Tracks the waits on memory at which one session's streams stand or will stand. The driver does
// not tell which waits have ended, so an event is recorded behind each batch of operations.
//
// An event belongs to a context, and only streams of that context can record it. A session's streams
// change between the time-slice groups, so each group has events of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "coroutine_runtime/memory_op.h"
#include "proto/mutex.h"
#include "server/backends/cuda/driver_api.h"

namespace detshare::cuda {

class CudaGroup;

// Any thread may call it, with a context of the GPU current.
class MemoryWaits {
 public:
  explicit MemoryWaits(const DriverApi& api) : api_(api) {}
  // By now no wait is pending, or the context is lost.
  ~MemoryWaits();
  MemoryWaits(const MemoryWaits&) = delete;
  MemoryWaits& operator=(const MemoryWaits&) = delete;

  // Calls `submit`, which puts work with these operations, waits among them, into `stream`. The
  // waits are pending from before that call. `group` is that of the stream; its context is current.
  CUresult Submit(const CudaGroup& group, CUstream stream, absl::Span<const MemoryOp> operations,
                  absl::FunctionRef<CUresult()> submit);

  // Returns whether a wait may be pending.
  bool Pending();
  // Returns, for each stream, a wait at which it may stand. The waits of one batch take turns from
  // call to call, because it is unknown at which of them the stream stands.
  std::vector<MemoryOp> OneOfEachStream();

 private:
  struct Batch {
    CUstream stream = nullptr;
    bool urgent = false;  // the group of the stream and the event
    CUevent passed = nullptr;
    bool submitted = false;
    std::vector<MemoryOp> waits;
    size_t turn = 0;
  };
  // Forgets batches that have ended.
  void Prune() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const DriverApi& api_;
  Mutex mutex_;
  std::list<Batch> batches_ ABSL_GUARDED_BY(mutex_);
  // Of the ordinary and the urgent group.
  std::array<std::vector<CUevent>, 2> spare_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::cuda
