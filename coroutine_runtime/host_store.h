// Ordinary host memory, of limited size, for memory that was evicted from a card.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "coroutine_runtime/quota.h"

namespace detshare {

// A piece of the store, initially zeroed. Given back when it ends.
class HostBlock {
 public:
  HostBlock() = default;
  HostBlock(HostBlock&& other) noexcept { *this = std::move(other); }
  HostBlock& operator=(HostBlock&& other) noexcept {
    std::swap(charge_, other.charge_);
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
  QuotaCharge charge_;  // ends after the memory is gone
  std::byte* memory_ = nullptr;
  uint64_t bytes_ = 0;
};

// Threading: any thread.
class HostStore {
 public:
  // `shared` is empty if no other process has a part of the limit.
  explicit HostStore(uint64_t limit, Quota::Shared shared = {});
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  // ResourceExhausted if the limit or the host does not allow it.
  absl::StatusOr<HostBlock> Take(uint64_t bytes);
  uint64_t limit() const { return quota_->limit(); }
  uint64_t used() const { return quota_->used(); }
  // The same of all processes together.
  uint64_t used_by_all() const { return quota_->used_by_all(); }

 private:
  const std::shared_ptr<Quota> quota_;
};

}  // namespace detshare
