// What each tenant has and may have: device memory, pinned host memory, sessions. Decides whether
// there is more, and says why not.
//
// An account is there as long as anything is taken of it: clients choose names, which must not
// add up.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coroutine_runtime/quota.h"
#include "policy/config/tenant_quota.h"

namespace detshare {

// Of one tenant. Any thread.
class TenantAccount {
 public:
  TenantAccount(std::string tenant, size_t devices, const TenantQuota& quota);
  TenantAccount(const TenantAccount&) = delete;
  TenantAccount& operator=(const TenantAccount&) = delete;

  // These keep the account. Errors of memory are CUDA_ERROR_OUT_OF_MEMORY, of sessions
  // ResourceExhausted; all of them name tenant, limit, what is used, and what to do.
  static std::shared_ptr<Quota> Memory(const std::shared_ptr<TenantAccount>& account,
                                       size_t device);
  static std::shared_ptr<Quota> Pinned(const std::shared_ptr<TenantAccount>& account);
  static std::shared_ptr<Quota> Sessions(const std::shared_ptr<TenantAccount>& account);

  const std::string& tenant() const { return tenant_; }
  void Set(const TenantQuota& quota);
  TenantQuota limits() const;
  // That a session of it gets at most; 0: all.
  uint64_t devices() const { return devices_.load(std::memory_order_relaxed); }
  uint64_t memory_used(size_t device) const { return memory_[device]->used(); }
  uint64_t pinned_used() const { return pinned_.used(); }
  uint64_t sessions_used() const { return sessions_.used(); }
  // A session was refused elsewhere because of the tenant's limit.
  void CountRefusal() { refusals_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t refusals() const { return refusals_.load(std::memory_order_relaxed); }

 private:
  absl::Status Refuse(const char* what, const char* flag, const Quota& quota, uint64_t wanted);

  const std::string tenant_;
  std::vector<std::unique_ptr<Quota>> memory_;  // one a device
  Quota pinned_, sessions_;
  std::atomic<uint64_t> devices_;
  std::atomic<uint64_t> refusals_{0};
  std::atomic<int64_t> say_again_{0};  // when refusals are logged again
};

// Any thread.
class TenantAccounts {
 public:
  explicit TenantAccounts(size_t devices) : devices_(devices) {}

  // Of tenants that have no limits of their own.
  void SetDefault(const TenantQuota& quota);
  // Holds at once; what is above a lower limit stays.
  void Set(const std::string& tenant, const TenantQuota& quota);
  // It has no limits of its own any more.
  void Unset(const std::string& tenant);
  std::shared_ptr<TenantAccount> Of(const std::string& tenant);
  // Of tenants that have something, or limits of their own.
  std::vector<std::shared_ptr<TenantAccount>> All();

 private:
  std::shared_ptr<TenantAccount> OfLocked(const std::string& tenant);

  const size_t devices_;
  std::mutex mutex_;  // guards what follows
  TenantQuota default_;
  std::map<std::string, TenantQuota> quotas_;
  std::map<std::string, std::weak_ptr<TenantAccount>> accounts_;
  size_t forget_at_ = 64;  // accounts that make it worth looking for those that are over
};

}  // namespace detshare
