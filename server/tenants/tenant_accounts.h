// Counts the device memory, pinned host memory and sessions that each tenant uses, and refuses what
// exceeds the tenant's limits with the reason.
//
// An account exists as long as an object holds a charge of it. Clients choose the names of tenants,
// so the number of accounts must not grow without bound. The count of refusals outlasts the account of
// a tenant with limits of its own: operators choose these.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coroutine_runtime/quota.h"
#include "policy/config/tenant_quota.h"
#include "proto/mutex.h"
#include "server/tenants/tenant_board.h"

namespace detshare {

// The use and limits of one tenant, over all of its sessions. Any thread may call it.
class TenantAccount {
 public:
  // The largest control call fits, beside the queued work of many sessions.
  static constexpr uint64_t kWaitingBytes = uint64_t{2} << 30;

  using Count = std::shared_ptr<std::atomic<uint64_t>>;  // relaxed: it publishes only itself

  // `board` shows what the tenant uses in other processes, and outlives the account; null: nothing.
  // `refusals` goes on from what it is; null: a count of the account alone.
  TenantAccount(std::string tenant, size_t devices, const TenantQuota& quota,
                TenantBoard* board = nullptr, Count refusals = nullptr);
  ~TenantAccount() { TenantBoard::Release(words_); }
  TenantAccount(const TenantAccount&) = delete;
  TenantAccount& operator=(const TenantAccount&) = delete;

  // Return a quota that keeps the account alive. A refusal of memory is CUDA_ERROR_OUT_OF_MEMORY, a
  // refusal of a session ResourceExhausted. The message names the tenant, the limit, what is used,
  // and what to do.
  static std::shared_ptr<Quota> Memory(const std::shared_ptr<TenantAccount>& account,
                                       size_t device);
  static std::shared_ptr<Quota> Pinned(const std::shared_ptr<TenantAccount>& account);
  // The daemon's own memory for requests that are not carried out yet: queued work, control calls
  // and replies. The limit is fixed (kWaitingBytes).
  static std::shared_ptr<Quota> Waiting(const std::shared_ptr<TenantAccount>& account);
  // The daemon's own memory for what sessions keep: loaded code and executable graphs. The limit is
  // half of the host's memory. A refusal is CUDA_ERROR_OUT_OF_MEMORY.
  static std::shared_ptr<Quota> Kept(const std::shared_ptr<TenantAccount>& account);
  static std::shared_ptr<Quota> Sessions(const std::shared_ptr<TenantAccount>& account);

  const std::string& tenant() const { return tenant_; }
  void Set(const TenantQuota& quota);
  TenantQuota limits() const;
  // The number of devices that one session of the tenant gets at most; 0: all.
  uint64_t devices() const { return devices_.load(std::memory_order_relaxed); }
  uint64_t memory_used(size_t device) const { return memory_[device]->used(); }
  uint64_t pinned_used() const { return pinned_.used(); }
  uint64_t sessions_used() const { return sessions_.used(); }
  // Counts a session that other code refused because of the tenant's limit.
  void CountRefusal() { refusals_->fetch_add(1, std::memory_order_relaxed); }
  uint64_t refusals() const { return refusals_->load(std::memory_order_relaxed); }
  const Count& refusal_count() const { return refusals_; }

 private:
  absl::Status Refuse(const char* what, const char* flag, const Quota& quota, uint64_t wanted);

  const std::string tenant_;
  TenantWords* const words_;                    // null: no other process has a part of the limits
  std::vector<std::unique_ptr<Quota>> memory_;  // one for each device
  Quota pinned_, waiting_, kept_, sessions_;
  std::atomic<uint64_t> devices_;  // as devices(); relaxed: it publishes only itself
  const Count refusals_;
  // When the next refusal may be logged, in steady_clock ticks. The thread that moves it forward
  // writes the line.
  std::atomic<int64_t> say_again_{0};
};

// The accounts of all tenants. Any thread may call it.
class TenantAccounts {
 public:
  // `board` is as in TenantAccount.
  explicit TenantAccounts(size_t devices, TenantBoard* board = nullptr)
      : devices_(devices), board_(board) {}

  // Sets the limits of tenants that have none of their own.
  void SetDefault(const TenantQuota& quota);
  TenantQuota default_quota();
  // Takes effect at once. A tenant keeps what it uses above a lower limit.
  void Set(const std::string& tenant, const TenantQuota& quota);
  // Removes the tenant's own limits; the default ones apply.
  void Unset(const std::string& tenant);
  std::shared_ptr<TenantAccount> Of(const std::string& tenant);
  // Returns the accounts of tenants that use something or have limits of their own.
  std::vector<std::shared_ptr<TenantAccount>> All();

 private:
  std::shared_ptr<TenantAccount> OfLocked(const std::string& tenant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t devices_;
  TenantBoard* const board_;
  Mutex mutex_;
  TenantQuota default_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, TenantQuota> quotas_ ABSL_GUARDED_BY(mutex_);
  // Of the tenants in `quotas_`.
  std::map<std::string, TenantAccount::Count> refusals_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::weak_ptr<TenantAccount>> accounts_ ABSL_GUARDED_BY(mutex_);
  // The number of accounts at which expired ones are removed next.
  size_t forget_at_ ABSL_GUARDED_BY(mutex_) = 64;
};

}  // namespace detshare
