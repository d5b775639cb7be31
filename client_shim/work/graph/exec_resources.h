// What an executable graph uses up in this process: fences, and memory through which copies of
// ordinary memory go.
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
  // The resources were given back, or the session is over.
  ~ExecResources() override = default;

  FenceIndex Fence() override;
  std::byte* Staging(uint64_t bytes) override;

  // From now on everything is given out once more: for the same graph, flattened again.
  void Rewind();

  // The next value of a fence: each launch asks for one of each.
  uint64_t NextValue(FenceIndex fence);

  bool has_staging() const { return !blocks_.empty(); }
  // Nobody uses the staging memory any more.
  void FreeStaging();
  // Their values may still be on the way.
  void GiveFences();

 private:
  struct Block {
    std::byte* memory;
    uint64_t bytes;
    uint64_t used;
  };
  Context& context_;
  std::vector<FenceIndex> fences_;                   // in the order in which they are given out
  std::unordered_map<FenceIndex, uint64_t> values_;  // the highest that were asked for
  size_t next_fence_ = 0;
  std::vector<Block> blocks_;
};

}  // namespace detshare::shim
