#include "client_shim/work/graph/exec_resources.h"

#include <algorithm>

#include "client_shim/memory/host_memory.h"
#include "client_shim/transport/session.h"

namespace detshare::shim {
namespace {

constexpr uint64_t kBlockBytes = 1 << 20;
constexpr uint64_t kAlignment = 256;

}  // namespace

FenceIndex ExecResources::Fence() {
  if (next_fence_ == fences_.size()) {
    const OwnedFence fence = session().fences().Take();
    if (fence.index == kNoFence) return kNoFence;
    fences_.push_back(fence.index);
    values_[fence.index] = fence.value;
  }
  return fences_[next_fence_++];
}

std::byte* ExecResources::Staging(uint64_t bytes) {
  if (bytes > UINT64_MAX - kAlignment) return nullptr;
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  for (Block& block : blocks_) {
    if (block.bytes - block.used < bytes) continue;
    block.used += bytes;
    return block.memory + block.used - bytes;
  }
  const uint64_t size = std::max(bytes, kBlockBytes);
  const ContextId context = context_.id.load(std::memory_order_acquire);
  void* memory;
  if (AllocateHostBlock(context_, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP,
                        &memory) != CUDA_SUCCESS) {
    return nullptr;
  }
  blocks_.push_back({context, static_cast<std::byte*>(memory), size, bytes});
  return blocks_.back().memory;
}

void ExecResources::Rewind() {
  next_fence_ = 0;
  for (Block& block : blocks_) block.used = 0;
}

uint64_t ExecResources::NextValue(FenceIndex fence) { return ++values_.at(fence); }

void ExecResources::FreeStaging() {
  for (const Block& block : blocks_) FreeHostBlockLater(block.context, block.memory);
  blocks_.clear();
}

void ExecResources::GiveFences() {
  for (const auto& [fence, value] : values_) session().fences().Give(fence, value);
  values_.clear();
  fences_.clear();
}

}  // namespace detshare::shim
