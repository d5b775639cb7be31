// The settings that operators change at run time: the policy, and the class, objectives and limits
// of tenants. Checks them, puts them in force on every device, and keeps them for the daemon that
// replaces this one.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "policy/policy.h"
#include "server/tenants/tenant_accounts.h"

namespace detshare {

class DeviceScheduler;

namespace proto {
class PolicySetting;
class Settings;
class TenantSetting;
}  // namespace proto

// Returns the tenant as policies see it. Returns InvalidArgument, with the allowed values, for
// values that make no sense. `sm_count` is that of the largest device.
absl::StatusOr<policy::Tenant> ToTenant(const proto::TenantSetting& setting, int sm_count);
// Returns the tenant's limits, for a host with `device_count` devices. Errors as ToTenant().
absl::StatusOr<TenantQuota> ToQuota(const proto::TenantSetting& setting, size_t device_count);
proto::TenantSetting ToSetting(const policy::Tenant& tenant, const TenantQuota& quota);
// Returns "unset", "latency" or "batch".
std::string NameOf(policy::TenantClass tenant_class);

// Any thread may call it.
class SettingsStore {
 public:
  // The number of tenants that may have settings.
  static constexpr int kMaxTenants = 1000;

  // `initial` is in force already. `file` keeps the settings after a change; empty: nothing keeps
  // them. The schedulers and the accounts outlive this object.
  SettingsStore(std::vector<DeviceScheduler*> schedulers, TenantAccounts& accounts, int sm_count,
                const proto::Settings& initial, std::string file);
  ~SettingsStore();

  proto::Settings current() const;

  // Sets the policy of all devices or, with an error, of none. May drain the devices if a partition
  // must be made.
  absl::Status SetPolicy(const proto::PolicySetting& setting);
  // Changes a tenant's settings and returns those in force afterwards. Fields that `change` lacks
  // stay.
  absl::StatusOr<proto::TenantSetting> SetTenant(const proto::TenantSetting& change);
  // Replaces the policy and the settings of all tenants; a tenant that `wanted` does not name has
  // none afterwards. Returns the changes, one line each, such as "[policy] name: whole -> fair".
  // Without a change it touches nothing.
  absl::StatusOr<std::vector<std::string>> Replace(const proto::Settings& wanted);

 private:
  void Save();  // called with mutex_ held

  const std::vector<DeviceScheduler*> schedulers_;
  TenantAccounts& accounts_;
  const int sm_count_;
  const std::string file_;
  mutable std::mutex mutex_;
  const std::unique_ptr<proto::Settings> current_;  // guarded by mutex_
};

// Reads the settings that a daemon kept in `file`. Returns NotFound if there is no file, and
// InvalidArgument if it is damaged.
absl::StatusOr<proto::Settings> ReadSettings(const std::string& file);

}  // namespace detshare
