// Ordinary host memory, of limited size, for memory that was evicted from a card.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/mutex.h"

namespace detshare {

class HostStore;

// A piece of the store, initially zeroed. Given back when it ends.
class HostBlock {
 public:
  HostBlock() = default;
  HostBlock(HostBlock&& other) noexcept { *this = std::move(other); }
  HostBlock& operator=(HostBlock&& other) noexcept {
    std::swap(store_, other.store_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HostBlock();

  explicit operator bool() const { return memory_ != nullptr; }
  std::byte* memory() const { return memory_; }
  uint64_t bytes() const { return bytes_; }

 private:
  friend class HostStore;
  HostStore* store_ = nullptr;
  std::byte* memory_ = nullptr;
  uint64_t bytes_ = 0;
};

// Threading: any thread. Lifetime: outlives its blocks.
class HostStore {
 public:
  // Several processes that keep one limit together. Each publishes what it uses before it reads what
  // the others use, so that they never exceed the limit.
  struct Shared {
    std::atomic<uint64_t>* own = nullptr;  // outlives the store; sequentially consistent
    std::function<uint64_t()> others;      // the sum of what the others have published
  };

  explicit HostStore(uint64_t limit) : HostStore(limit, {}) {}
  // `shared` is empty if no other process has a part of the limit.
  HostStore(uint64_t limit, Shared shared) : limit_(limit), shared_(std::move(shared)) {}
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  // ResourceExhausted if the limit or the host does not allow it.
  absl::StatusOr<HostBlock> Take(uint64_t bytes);
  uint64_t limit() const { return limit_; }
  uint64_t used() const;
  // The same of all processes together.
  uint64_t used_by_all() const;

 private:
  friend class HostBlock;
  void Change(uint64_t used) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t OfOthers() const { return shared_.others ? shared_.others() : 0; }

  const uint64_t limit_;
  const Shared shared_;
  mutable Mutex mutex_;
  uint64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace detshare
