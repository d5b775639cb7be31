// The runtime's own fences, in memory that one session's work may write.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"

namespace detshare {

// A point in a session's work, reached once *fence >= value. The fences of a pool only grow, so a
// point stays valid as long as the pool, even if the fence has a new user.
struct FencePoint {
  const std::atomic<uint64_t>* fence = nullptr;
  uint64_t value = 0;
  bool reached() const {
    return fence == nullptr || fence->load(std::memory_order_acquire) >= value;
  }
  friend bool operator==(const FencePoint&, const FencePoint&) = default;
};

class FencePool;

// The right to signal one fence. Return it only when every signalled value is reached, or the work
// is lost.
class FenceLease {
 public:
  FenceLease() = default;
  FenceLease(FenceLease&& other) noexcept;
  FenceLease& operator=(FenceLease&& other) noexcept;
  ~FenceLease();

  explicit operator bool() const { return pool_ != nullptr; }
  std::atomic<uint64_t>* fence() const { return fence_; }
  // Returns a value that was not used before.
  uint64_t Next() { return ++*last_; }
  // The last value of Next().
  FencePoint point() const { return FencePoint{fence_, *last_}; }

 private:
  friend class FencePool;
  FencePool* pool_ = nullptr;
  std::atomic<uint64_t>* fence_ = nullptr;
  uint64_t* last_ = nullptr;
};

// Threading: one thread. Lifetime: ends after its leases and after the address space, whose
// destructor removes the registrations.
class FencePool {
 public:
  explicit FencePool(AddressSpace& space) : space_(space) {}
  ~FencePool();
  FencePool(const FencePool&) = delete;
  FencePool& operator=(const FencePool&) = delete;

  // Registers another page when all fences are in use.
  absl::StatusOr<FenceLease> Acquire();

 private:
  friend class FenceLease;
  struct Slot {
    std::atomic<uint64_t>* fence;
    uint64_t* last;
  };
  struct Page;

  AddressSpace& space_;
  std::vector<Page*> pages_;
  std::vector<Slot> free_;
};

}  // namespace detshare
