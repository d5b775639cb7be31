#include "coroutine_runtime/fence_pool.h"

#include <sys/mman.h>

#include <array>
#include <utility>

#include "coroutine_runtime/fresh_address.h"
#include "coroutine_runtime/status_cuda.h"

namespace detshare {
namespace {

constexpr size_t kPageSize = 4096;
constexpr size_t kFencesPerPage = kPageSize / sizeof(std::atomic<uint64_t>);

}  // namespace

struct FencePool::Page {
  void* memory = nullptr;
  std::array<uint64_t, kFencesPerPage> last{};
};

FenceLease::FenceLease(FenceLease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      fence_(std::exchange(other.fence_, nullptr)),
      last_(std::exchange(other.last_, nullptr)) {}

FenceLease& FenceLease::operator=(FenceLease&& other) noexcept {
  if (this != &other) {
    if (pool_ != nullptr) pool_->free_.push_back({fence_, last_});
    pool_ = std::exchange(other.pool_, nullptr);
    fence_ = std::exchange(other.fence_, nullptr);
    last_ = std::exchange(other.last_, nullptr);
  }
  return *this;
}

FenceLease::~FenceLease() {
  if (pool_ != nullptr) pool_->free_.push_back({fence_, last_});
}

FencePool::~FencePool() {
  for (Page* page : pages_) {
    munmap(page->memory, kPageSize);
    delete page;
  }
}

absl::StatusOr<FenceLease> FencePool::Acquire() {
  if (free_.empty()) {
    void* memory = mmap(FreshAddress(kPageSize), kPageSize, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return CudaError(kCudaErrorOutOfMemory, "no memory for fences");
    if (absl::Status registered = space_.RegisterHost(memory, kPageSize); !registered.ok()) {
      munmap(memory, kPageSize);
      return registered;
    }
    auto* page = new Page;
    page->memory = memory;
    pages_.push_back(page);
    auto* fences = static_cast<std::atomic<uint64_t>*>(memory);
    free_.reserve(pages_.size() * kFencesPerPage);
    for (size_t i = kFencesPerPage; i-- > 0;)
      free_.push_back({new (&fences[i]) std::atomic<uint64_t>(0), &page->last[i]});
  }
  const Slot slot = free_.back();
  free_.pop_back();
  FenceLease lease;
  lease.pool_ = this;
  lease.fence_ = slot.fence;
  lease.last_ = slot.last;
  return lease;
}

}  // namespace detshare
