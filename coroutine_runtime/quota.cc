#include "coroutine_runtime/quota.h"

#include "absl/strings/cord.h"

namespace detshare {

// The name of a payload, as absl::Status wants it.
constexpr char kLimit[] = "detshare/limit";

absl::Status MarkLimit(absl::Status status) {
  status.SetPayload(kLimit, absl::Cord());
  return status;
}

bool IsLimit(const absl::Status& status) { return status.GetPayload(kLimit).has_value(); }

QuotaCharge::~QuotaCharge() {
  if (quota_ != nullptr) quota_->used_.fetch_sub(bytes_, std::memory_order_relaxed);
}

void QuotaCharge::Set(uint64_t bytes) {
  if (quota_ == nullptr || bytes == bytes_) return;
  const uint64_t more = bytes - bytes_;
  quota_->NotePeak(quota_->used_.fetch_add(more, std::memory_order_relaxed) + more);
  bytes_ = bytes;
}

void Quota::NotePeak(uint64_t used) {
  uint64_t peak = peak_.load(std::memory_order_relaxed);
  while (used > peak && !peak_.compare_exchange_weak(peak, used, std::memory_order_relaxed)) {
  }
}

std::optional<QuotaCharge> Quota::TryTake(const std::shared_ptr<Quota>& quota, uint64_t bytes) {
  if (quota == nullptr) return QuotaCharge();
  uint64_t used = quota->used_.load(std::memory_order_relaxed);
  do {
    const uint64_t limit = quota->limit();
    if (used > limit || bytes > limit - used) return std::nullopt;
  } while (!quota->used_.compare_exchange_weak(used, used + bytes));
  if (const uint64_t limit = quota->limit(); limit != kNoLimit && quota->others_) {
    const uint64_t others = quota->others_();
    if (others > limit || quota->used_.load() > limit - others) {
      quota->used_.fetch_sub(bytes);
      return std::nullopt;
    }
  }
  quota->NotePeak(used + bytes);
  return QuotaCharge(quota, bytes);
}

absl::StatusOr<QuotaCharge> Quota::Take(const std::shared_ptr<Quota>& quota, uint64_t bytes) {
  std::optional<QuotaCharge> charge = TryTake(quota, bytes);
  if (!charge.has_value()) return quota->refusal_(*quota, bytes);
  return *std::move(charge);
}

}  // namespace detshare
