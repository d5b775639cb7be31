// The streams and contexts of one session on one device, by their ids.
//
// A destroyed stream finishes its work: it loses its id at once, and is kept ("retired") until its
// fence shows that its work is complete. Then its queues return to the pool.
//
// Ownership: owns the streams and contexts. Their queues come from pools and their fences from a
// FencePool, which outlive the table. Threading: the coroutine's thread. Find() and FindContext()
// neither allocate nor lock. No call waits for the GPU.
//
// Errors: unknown ids give CUDA_ERROR_INVALID_HANDLE.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/logical_stream.h"
#include "coroutine_runtime/object_ids.h"
#include "coroutine_runtime/status_cuda.h"

namespace detshare {

struct StreamOptions {
  bool non_blocking = false;    // not ordered with the legacy default stream
  bool legacy_default = false;  // is the legacy default stream of its context
  int priority = 0;
};

class StreamTable {
 public:
  using Contexts = absl::flat_hash_map<ContextId, std::unique_ptr<LogicalContext>>;

  StreamTable() = default;
  StreamTable(const StreamTable&) = delete;
  StreamTable& operator=(const StreamTable&) = delete;

  // The context begins with its first stream. CUDA_ERROR_INVALID_VALUE if an id is 0, the stream's
  // id is in use, or the context has its legacy default stream already. CUDA_ERROR_OUT_OF_MEMORY if
  // the session has too many streams or contexts.
  absl::Status Create(StreamId id, ContextId context, const StreamOptions& options);

  // The stream is valid until it is reclaimed or its context ends.
  absl::StatusOr<LogicalStream*> Find(StreamId id) const {
    const auto found = streams_.find(id);
    if (found == streams_.end()) return CudaError(kCudaErrorInvalidHandle, "no such stream");
    return found->second.get();
  }
  // Null if no stream was created in the context.
  LogicalContext* FindContext(ContextId id) const;
  const Contexts& contexts() const { return contexts_; }
  // The number of streams that are not retired.
  size_t size() const { return streams_.size(); }

  // Retires an existing stream. The caller then puts the stream's fence behind its work. Without a
  // fence (the device is lost) the stream stays until its context or the table ends.
  void Retire(StreamId id);
  // Ends retired streams whose work is complete.
  void Reclaim();

  // A context that has ended, with its streams.
  struct Ended {
    std::unique_ptr<LogicalContext> context;
    std::vector<std::unique_ptr<LogicalStream>> streams;

    // Gives all queues back to their pools. The context's work is complete.
    void ReturnQueues();
  };
  // Removes an existing context and its streams from the table.
  Ended End(ContextId id);

 private:
  uint64_t created_ = 0;  // streams, ever
  Contexts contexts_;
  absl::flat_hash_map<StreamId, std::unique_ptr<LogicalStream>> streams_;
  std::vector<std::unique_ptr<LogicalStream>> retired_;
};

}  // namespace detshare
