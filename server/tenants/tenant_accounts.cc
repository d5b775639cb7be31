#include "server/tenants/tenant_accounts.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coroutine_runtime/status_cuda.h"
#include "server/base/host_memory.h"
#include "server/base/logging.h"
#include "server/tenants/session_refusals.h"

namespace detshare {
namespace {

using std::chrono::steady_clock;

// The time between two log lines about one tenant, because a program may ask in a loop.
constexpr std::chrono::seconds kSilence(10);

uint64_t LimitOf(uint64_t limit) { return limit == 0 ? Quota::kNoLimit : limit; }
uint64_t ZeroForNone(uint64_t limit) { return limit == Quota::kNoLimit ? 0 : limit; }

uint64_t HalfOfHostMemory() {
  static const uint64_t half = HostMemoryBytes() / 2;  // never changes
  return half;
}

std::string Size(uint64_t bytes) {
  if (bytes >= uint64_t{1} << 30)
    return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  return absl::StrFormat("%.2f MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

TenantAccount::TenantAccount(std::string tenant, size_t devices, const TenantQuota& quota,
                             TenantBoard* board, Count refusals)
    : tenant_(std::move(tenant)),
      words_(board != nullptr ? board->Claim(tenant_) : nullptr),
      pinned_(
          LimitOf(quota.pinned_memory),
          [this](const Quota& pinned, uint64_t bytes) {
            return Refuse("pinned host memory", "--pinned-memory", pinned, bytes);
          },
          words_ != nullptr ? board->Pinned(tenant_, words_) : Quota::Shared{}),
      waiting_(kWaitingBytes,
               [this](const Quota&, uint64_t) {
                 return CudaError(kCudaErrorOutOfMemory,
                                  absl::StrCat("the requests of tenant ", tenant_,
                                               " that wait take all memory for them"));
               }),
      kept_(HalfOfHostMemory(),
            [this](const Quota& kept, uint64_t bytes) {
              return CudaError(
                  kCudaErrorOutOfMemory,
                  absl::StrCat("tenant ", tenant_, ": ", Size(bytes),
                               " more of code and graphs do not fit half of the host's "
                               "memory, ",
                               Size(kept.limit()), ": end one of its programs"));
            }),
      sessions_(LimitOf(quota.sessions),
                [this](const Quota& sessions, uint64_t) {
                  CountRefusal();
                  return TenantIsFull(tenant_, sessions.used(), sessions.limit());
                }),
      devices_(quota.devices),
      refusals_(refusals != nullptr ? std::move(refusals)
                                    : std::make_shared<std::atomic<uint64_t>>(0)) {
  for (size_t i = 0; i < devices; ++i) {
    memory_.push_back(std::make_unique<Quota>(
        LimitOf(quota.memory),
        [this, i](const Quota& memory, uint64_t bytes) {
          return Refuse(absl::StrCat("memory of device ", i).c_str(), "--memory", memory, bytes);
        },
        words_ != nullptr ? board->Memory(tenant_, words_, i) : Quota::Shared{}));
  }
}

absl::Status TenantAccount::Refuse(const char* what, const char* flag, const Quota& quota,
                                   uint64_t wanted) {
  CountRefusal();
  const std::string why =
      absl::StrCat("tenant ", tenant_, ": ", Size(wanted), " more of ", what,
                   " do not fit its limit of ", Size(quota.limit()),
                   ", of which all of its sessions together use ", Size(quota.used_by_all()),
                   ": free some, or let an operator allow more: detsharectl tenant set ", tenant_,
                   " ", flag, " SIZE");
  const int64_t now = steady_clock::now().time_since_epoch().count();
  int64_t again = say_again_.load(std::memory_order_relaxed);
  const int64_t next = now + steady_clock::duration(kSilence).count();
  if (now >= again && say_again_.compare_exchange_strong(again, next, std::memory_order_relaxed))
    LogWarning(why);
  return MarkLimit(CudaError(kCudaErrorOutOfMemory, why));
}

std::shared_ptr<Quota> TenantAccount::Memory(const std::shared_ptr<TenantAccount>& account,
                                             size_t device) {
  return {account, account->memory_[device].get()};
}

std::shared_ptr<Quota> TenantAccount::Pinned(const std::shared_ptr<TenantAccount>& account) {
  return {account, &account->pinned_};
}

std::shared_ptr<Quota> TenantAccount::Waiting(const std::shared_ptr<TenantAccount>& account) {
  return {account, &account->waiting_};
}

std::shared_ptr<Quota> TenantAccount::Kept(const std::shared_ptr<TenantAccount>& account) {
  return {account, &account->kept_};
}

std::shared_ptr<Quota> TenantAccount::Sessions(const std::shared_ptr<TenantAccount>& account) {
  return {account, &account->sessions_};
}

void TenantAccount::Set(const TenantQuota& quota) {
  for (const auto& memory : memory_) memory->set_limit(LimitOf(quota.memory));
  pinned_.set_limit(LimitOf(quota.pinned_memory));
  sessions_.set_limit(LimitOf(quota.sessions));
  devices_.store(quota.devices, std::memory_order_relaxed);
}

TenantQuota TenantAccount::limits() const {
  return {memory_.empty() ? 0 : ZeroForNone(memory_[0]->limit()), ZeroForNone(pinned_.limit()),
          ZeroForNone(sessions_.limit()), devices()};
}

void TenantAccounts::SetDefault(const TenantQuota& quota) {
  const MutexLock lock(&mutex_);
  default_ = quota;
  for (const auto& [tenant, known] : accounts_) {
    const std::shared_ptr<TenantAccount> account = known.lock();
    if (account != nullptr && quotas_.count(tenant) == 0) account->Set(quota);
  }
}

TenantQuota TenantAccounts::default_quota() {
  const MutexLock lock(&mutex_);
  return default_;
}

void TenantAccounts::Set(const std::string& tenant, const TenantQuota& quota) {
  const MutexLock lock(&mutex_);
  quotas_[tenant] = quota;
  const auto known = accounts_.find(tenant);
  const std::shared_ptr<TenantAccount> account =
      known != accounts_.end() ? known->second.lock() : nullptr;
  if (account != nullptr) account->Set(quota);
  if (TenantAccount::Count& count = refusals_[tenant]; count == nullptr) {
    count =
        account != nullptr ? account->refusal_count() : std::make_shared<std::atomic<uint64_t>>(0);
  }
}

void TenantAccounts::Unset(const std::string& tenant) {
  const MutexLock lock(&mutex_);
  quotas_.erase(tenant);
  refusals_.erase(tenant);
  const auto known = accounts_.find(tenant);
  if (known == accounts_.end()) return;
  if (const std::shared_ptr<TenantAccount> account = known->second.lock()) account->Set(default_);
}

std::shared_ptr<TenantAccount> TenantAccounts::OfLocked(const std::string& tenant) {
  std::weak_ptr<TenantAccount>& place = accounts_[tenant];
  std::shared_ptr<TenantAccount> account = place.lock();
  if (account == nullptr) {
    const auto own = quotas_.find(tenant);
    const auto count = refusals_.find(tenant);
    account = std::make_shared<TenantAccount>(tenant, devices_,
                                              own != quotas_.end() ? own->second : default_, board_,
                                              count != refusals_.end() ? count->second : nullptr);
    place = account;
  }
  return account;
}

std::shared_ptr<TenantAccount> TenantAccounts::Of(const std::string& tenant) {
  const MutexLock lock(&mutex_);
  std::shared_ptr<TenantAccount> account = OfLocked(tenant);
  if (accounts_.size() >= forget_at_) {
    std::erase_if(accounts_, [](const auto& entry) { return entry.second.expired(); });
    forget_at_ = std::max<size_t>(64, 2 * accounts_.size());
  }
  return account;
}

std::vector<std::shared_ptr<TenantAccount>> TenantAccounts::All() {
  const MutexLock lock(&mutex_);
  std::set<std::string> tenants;
  for (const auto& [tenant, quota] : quotas_) {
    if (quota != TenantQuota()) tenants.insert(tenant);
  }
  for (const auto& [tenant, account] : accounts_) {
    if (!account.expired()) tenants.insert(tenant);
  }
  std::vector<std::shared_ptr<TenantAccount>> all;
  for (const std::string& tenant : tenants) all.push_back(OfLocked(tenant));
  return all;
}

}  // namespace detshare
