// Tracks the waits on memory at which one session's streams stand or will stand. The driver does
// not tell which waits have ended, so an event is recorded behind each batch of operations.
#pragma once

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

// Any thread may call it, with the GPU's context current.
class MemoryWaits {
 public:
  explicit MemoryWaits(const DriverApi& api) : api_(api) {}
  // By now no wait is pending, or the context is lost.
  ~MemoryWaits();
  MemoryWaits(const MemoryWaits&) = delete;
  MemoryWaits& operator=(const MemoryWaits&) = delete;

  // Calls `submit`, which puts work with these operations, waits among them, into `stream`. The
  // waits are pending from before that call.
  CUresult Submit(CUstream stream, absl::Span<const MemoryOp> operations,
                  absl::FunctionRef<CUresult()> submit);

  // Returns whether a wait may be pending.
  bool Pending();
  // Returns, for each stream, a wait at which it may stand. The waits of one batch take turns from
  // call to call, because it is unknown at which of them the stream stands.
  std::vector<MemoryOp> OneOfEachStream();

 private:
  struct Batch {
    CUstream stream = nullptr;
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
  std::vector<CUevent> spare_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::cuda
