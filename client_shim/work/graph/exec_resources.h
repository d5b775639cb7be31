// The resources that an executable graph uses in this process: fences, and memory through which
// copies of ordinary memory pass. Not thread-safe: the executable graph's mutex guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "client_shim/transport/fence_allocator.h"
#include "client_shim/work/graph/flatten.h"

namespace detshare::shim {

struct Context;

class ExecResources : public FlattenResources {
 public:
  explicit ExecResources(Context& context) : context_(context) {}
  ExecResources(const ExecResources&) = delete;
  ExecResources& operator=(const ExecResources&) = delete;
  // The owner has given the resources back before, or the session is over.
  ~ExecResources() override = default;

  FenceIndex Fence() override;
  std::byte* Staging(uint64_t bytes) override;

  // Hands out the same resources again, in the same order. For flattening the same graph again.
  void Rewind();

  // The next value of a fence. Each launch asks for one value of each fence.
  uint64_t NextValue(FenceIndex fence);

  bool has_staging() const { return !blocks_.empty(); }
  // Frees the staging memory that has not ended with its context. No launch uses it any more.
  void FreeStaging();
  // Gives the fences back. Their values may not have arrived yet.
  void GiveFences();

 private:
  struct Block {
    ContextId context;  // the context's life in which it was allocated
    std::byte* memory;
    uint64_t bytes;
    uint64_t used;
  };
  Context& context_;
  std::vector<FenceIndex> fences_;                   // in the order in which they were handed out
  std::unordered_map<FenceIndex, uint64_t> values_;  // the highest values that were asked for
  size_t next_fence_ = 0;
  std::vector<Block> blocks_;
};

}  // namespace detshare::shim
