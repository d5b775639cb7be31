// What operators set while the daemon runs: the policy, what is said about tenants, and what they
// may have. Checks it, puts it in force on every device, and leaves it to the daemon that replaces
// this one.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device_scheduler.h"
#include "policy/policy.h"
#include "proto/admin.pb.h"
#include "server/tenants/tenant_accounts.h"

namespace detshare {

// A tenant as policies see it. InvalidArgument, with what is allowed, for values that make no
// sense; `sm_count` is that of the largest device.
absl::StatusOr<policy::Tenant> ToTenant(const proto::TenantSetting& setting, int sm_count);
// The same for what it may have, of a host with so many devices.
absl::StatusOr<TenantQuota> ToQuota(const proto::TenantSetting& setting, size_t device_count);
proto::TenantSetting ToSetting(const policy::Tenant& tenant, const TenantQuota& quota);
// "unset", "latency" or "batch".
std::string NameOf(policy::TenantClass tenant_class);

// Any thread.
class SettingsStore {
 public:
  // Tenants about which something may be said.
  static constexpr int kMaxTenants = 1000;

  // `initial` is in force already. The schedulers and the accounts outlive this. `file`: where what
  // is in force is kept after a change; empty: nowhere.
  SettingsStore(std::vector<DeviceScheduler*> schedulers, TenantAccounts& accounts, int sm_count,
           proto::Settings initial, std::string file);

  proto::Settings current() const;

  // On all devices or, with an error, on none. May drain the devices, where a partition is missing.
  absl::Status SetPolicy(const proto::PolicySetting& setting);
  // What is in force for the tenant then. Fields that `change` lacks stay.
  absl::StatusOr<proto::TenantSetting> SetTenant(const proto::TenantSetting& change);
  // Policy and all that is said about tenants: what `wanted` does not mention is in force no more.
  // What has changed, a line each: "[policy] name: whole -> fair". Nothing is touched where nothing
  // changes.
  absl::StatusOr<std::vector<std::string>> Replace(const proto::Settings& wanted);

 private:
  void Save();  // with mutex_ held

  const std::vector<DeviceScheduler*> schedulers_;
  TenantAccounts& accounts_;
  const int sm_count_;
  const std::string file_;
  mutable std::mutex mutex_;
  proto::Settings current_;  // guarded by mutex_
};

// What a daemon has kept in the file. NotFound without one; InvalidArgument when it is damaged.
absl::StatusOr<proto::Settings> ReadSettings(const std::string& file);

}  // namespace detshare
