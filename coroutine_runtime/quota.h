// A limited amount that several users share, such as the memory of one tenant, which its sessions
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

// Marks an error as the refusal of a limit that an operator has set, so that the user learns of its
// message. The mark outlives copies of the status.
absl::Status MarkLimit(absl::Status status);
bool IsLimit(const absl::Status& status);

// An amount taken from a quota, given back when the charge ends. Threading: any thread, one at a
// time.
class QuotaCharge {
 public:
  QuotaCharge() = default;
  // An amount of 0. A null quota is unlimited.
  explicit QuotaCharge(std::shared_ptr<Quota> quota) : quota_(std::move(quota)) {}
  QuotaCharge(QuotaCharge&& other) noexcept
      : quota_(std::move(other.quota_)), bytes_(std::exchange(other.bytes_, 0)) {}
  QuotaCharge& operator=(QuotaCharge&& other) noexcept {
    std::swap(quota_, other.quota_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~QuotaCharge();

  // Changes the amount, even beyond the quota's limit: for what is there already. Nothing more is
  // granted until enough has been given back.
  void Set(uint64_t bytes);

 private:
  friend class Quota;
  QuotaCharge(std::shared_ptr<Quota> quota, uint64_t bytes)
      : quota_(std::move(quota)), bytes_(bytes) {}

  std::shared_ptr<Quota> quota_;
  uint64_t bytes_ = 0;
};

// Threading: any thread, without locks. Lifetime: charges keep the quota alive.
class Quota {
 public:
  static constexpr uint64_t kNoLimit = UINT64_MAX;
  // Creates the error for `bytes` that did not fit. Called on the requester's thread.
  using Refusal = std::function<absl::Status(const Quota& quota, uint64_t bytes)>;
  // Several processes that keep one limit together. Each publishes what it takes before it reads what
  // the others use. So they never exceed the limit; of two that take the rest at the same time, both
  // may be refused.
  struct Shared {
    std::atomic<uint64_t>* used = nullptr;  // by this process; 0 at first; outlives the quota
    std::function<uint64_t()> others;       // what the others use
  };

  Quota(uint64_t limit, Refusal refusal) : Quota(limit, std::move(refusal), {}) {}
  // `shared` is empty if no other process has a part of the limit.
  Quota(uint64_t limit, Refusal refusal, Shared shared)
      : refusal_(std::move(refusal)),
        limit_(limit),
        used_(shared.used != nullptr ? *shared.used : alone_),
        others_(std::move(shared.others)) {}
  Quota(const Quota&) = delete;
  Quota& operator=(const Quota&) = delete;

  // Takes all of the amount or nothing. A null quota is unlimited.
  static std::optional<QuotaCharge> TryTake(const std::shared_ptr<Quota>& quota, uint64_t bytes);
  // The same, but returns the error of the refusal.
  static absl::StatusOr<QuotaCharge> Take(const std::shared_ptr<Quota>& quota, uint64_t bytes);

  // A limit below the used amount takes nothing away. Nothing more is granted until enough has been
  // given back.
  void set_limit(uint64_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }
  uint64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  // The same of all processes together.
  uint64_t used_by_all() const { return used() + OfOthers(); }
  // The most that was ever used.
  uint64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  uint64_t left() const {
    const uint64_t limit = this->limit(), used = used_by_all();
    return used < limit ? limit - used : 0;
  }

 private:
  friend class QuotaCharge;
  void NotePeak(uint64_t used);

  uint64_t OfOthers() const { return others_ ? others_() : 0; }

  const Refusal refusal_;
  // Relaxed: numbers only; they publish nothing else. What is taken where others have a part of the
  // limit is sequentially consistent (Shared).
  std::atomic<uint64_t> limit_;
  std::atomic<uint64_t> alone_{0}, peak_{0};
  std::atomic<uint64_t>& used_;
  const std::function<uint64_t()> others_;
};

}  // namespace detshare
