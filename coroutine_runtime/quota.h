// So much of something, for several who take of it: the memory of one tenant, which its sessions
// share.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace detshare {

class Quota;

// What was taken, given back when this ends. Any thread, one at a time.
class QuotaCharge {
 public:
  QuotaCharge() = default;
  QuotaCharge(QuotaCharge&& other) noexcept
      : quota_(std::move(other.quota_)), bytes_(std::exchange(other.bytes_, 0)) {}
  QuotaCharge& operator=(QuotaCharge&& other) noexcept {
    std::swap(quota_, other.quota_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~QuotaCharge();

 private:
  friend class Quota;
  QuotaCharge(std::shared_ptr<Quota> quota, uint64_t bytes)
      : quota_(std::move(quota)), bytes_(bytes) {}

  std::shared_ptr<Quota> quota_;
  uint64_t bytes_ = 0;
};

// Any thread, without locks. Charges keep it.
class Quota {
 public:
  static constexpr uint64_t kNoLimit = UINT64_MAX;
  // Makes the error for `bytes` that did not fit. On the thread of who asked for them.
  using Refusal = std::function<absl::Status(const Quota& quota, uint64_t bytes)>;

  Quota(uint64_t limit, Refusal refusal) : refusal_(std::move(refusal)), limit_(limit) {}
  Quota(const Quota&) = delete;
  Quota& operator=(const Quota&) = delete;

  // All of it or nothing. Of a null quota there is no end.
  static std::optional<QuotaCharge> TryTake(const std::shared_ptr<Quota>& quota, uint64_t bytes);
  // ... or the error of the refusal.
  static absl::StatusOr<QuotaCharge> Take(const std::shared_ptr<Quota>& quota, uint64_t bytes);

  // A limit below what is used takes nothing away: there is nothing more until enough came back.
  void set_limit(uint64_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }
  uint64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  uint64_t left() const {
    const uint64_t limit = this->limit(), used = this->used();
    return used < limit ? limit - used : 0;
  }

 private:
  friend class QuotaCharge;
  const Refusal refusal_;
  // Relaxed: numbers only, they publish nothing else.
  std::atomic<uint64_t> limit_;
  std::atomic<uint64_t> used_{0};
};

}  // namespace detshare
