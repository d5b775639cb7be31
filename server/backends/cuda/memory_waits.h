// The waits on memory that one session's streams stand at or will come to. The driver does not say
// which are over, so an event is recorded behind each batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "coroutine_runtime/memory_op.h"
#include "server/backends/cuda/driver_api.h"

namespace detshare::cuda {

// Any thread, with the GPU's context current.
class MemoryWaits {
 public:
  explicit MemoryWaits(const DriverApi& api) : api_(api) {}
  // Nothing is pending any more, or the context is lost.
  ~MemoryWaits();
  MemoryWaits(const MemoryWaits&) = delete;
  MemoryWaits& operator=(const MemoryWaits&) = delete;

  // `submit` puts work with these operations, waits among them, into `stream`. From before the call
  // on the waits are pending.
  CUresult Submit(CUstream stream, absl::Span<const MemoryOp> operations,
                  absl::FunctionRef<CUresult()> submit);

  // Whether a wait may not be over.
  bool Pending();
  // For each stream a wait at which it may stand: those of one batch take turns from call to call,
  // since nobody knows at which of them it does.
  std::vector<MemoryOp> OneOfEachStream();

 private:
  struct Batch {
    CUstream stream = nullptr;
    CUevent passed = nullptr;
    bool submitted = false;
    std::vector<MemoryOp> waits;
    size_t turn = 0;
  };
  // Forgets what is over. With mutex_.
  void Prune();

  const DriverApi& api_;
  std::mutex mutex_;  // guards the rest
  std::list<Batch> batches_;
  std::vector<CUevent> spare_;
};

}  // namespace detshare::cuda
