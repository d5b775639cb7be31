// The settings that operators change at run time: the policy, and the class, objectives and limits
// of tenants. Checks them, puts them in force on every device, and keeps them for the daemon that
// replaces this one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "policy/policy.h"
#include "proto/mutex.h"
#include "server/session/server_options.h"
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
// Changes settings that a process has accepted which does not know this host's devices: lowers what
// is beyond them, and leaves out each other field that is not valid, and a tenant without a valid
// name. The rest of the tenant and all other tenants stay. Returns a line for each change, which names
// the tenant.
std::vector<std::string> FitSettings(int sm_count, size_t device_count, proto::Settings* settings);
// The policy and the tenants that the daemon's flags and its configuration ask for.
proto::Settings SettingsOf(const ServerOptions& options);
// The file in the runtime directory that keeps the settings of the process with this directory.
std::string SettingsFile(const std::string& runtime_directory);
// The settings that a change names, for the log and events: "class latency, memory 20GiB".
std::string ChangeText(const proto::TenantSetting& change);
// Returns "unset", "latency" or "batch".
std::string NameOf(policy::TenantClass tenant_class);

// Any thread may call it.
class SettingsStore {
 public:
  // The number of tenants that may have settings.
  static constexpr int kMaxTenants = 1000;

  // `initial` is in force already. `file` keeps the settings after a change; empty: nothing keeps
  // them. A group `readers` may read it; 0: none. The schedulers and the accounts outlive this
  // object. Without schedulers, as in the supervisor, settings may name any number of devices, and
  // engines read them from `file`: what cannot be written there is not in force, so each change then
  // fails with ResourceExhausted and the reason.
  SettingsStore(std::vector<DeviceScheduler*> schedulers, TenantAccounts& accounts, int sm_count,
                const proto::Settings& initial, std::string file, gid_t readers = 0);
  ~SettingsStore();

  // Does not wait for a change, which may wait for a device.
  proto::Settings current() const;
  // Calls `changed` after each change of what is in force. `changed` neither waits nor calls this
  // object. Called before other threads use this object.
  void OnChange(std::function<void()> changed) { changed_ = std::move(changed); }
  // Writes the file also without a change. Returns ResourceExhausted with the reason if that fails and
  // the file has other settings; they stay there.
  absl::Status Keep();
  // Whether the file has the settings in force. If not, Keep() and the next change write it.
  bool written() const;

  // Sets the policy of all devices or, with an error, of none. May drain the devices if a partition
  // must be made.
  absl::Status SetPolicy(const proto::PolicySetting& setting);
  // Changes a tenant's settings and returns those in force afterwards. Fields that `change` lacks
  // stay. A tenant that has no settings yet keeps the default limits, too.
  absl::StatusOr<proto::TenantSetting> SetTenant(const proto::TenantSetting& change);
  // Takes back the last SetPolicy() or SetTenant(), which another process has refused. If something
  // else has changed since, it changes nothing, and the log says so.
  void TakeBack();
  // Gives the tenant back the settings that Replace() gave it, and those of its endpoints. Returns
  // NotFound, with the tenants that have settings, if it has none.
  absl::Status UnsetTenant(const std::string& name);
  // As SetTenant(), for a tenant endpoint with this number. Replace() keeps the settings until
  // UnsetForEndpoint().
  absl::StatusOr<proto::TenantSetting> SetForEndpoint(uint64_t endpoint,
                                                      const proto::TenantSetting& change);
  // The same for an endpoint that an earlier process had. Leaves it to Keep() to write the file.
  absl::Status RestoreForEndpoint(uint64_t endpoint, const proto::TenantSetting& change);
  // The endpoint is closed. As UnsetTenant() for its tenant, but a file that cannot be written is
  // written with the next change. Does nothing for an endpoint without settings.
  absl::Status UnsetForEndpoint(uint64_t endpoint);
  // Replaces the policy and the settings of all tenants; a tenant that neither `wanted` nor an
  // endpoint names has none afterwards, and the default limits. `default_quota` replaces these;
  // nothing: they stay. Returns the changes of settings, one line each, such as "[policy] name:
  // whole -> fair". With an error nothing changes.
  absl::StatusOr<std::vector<std::string>> Replace(
      const proto::Settings& wanted, std::optional<TenantQuota> default_quota = std::nullopt);
  // As Replace(), for the settings of the supervisor, made to fit the devices (FitSettings()). If the
  // policy cannot serve the tenants, the tenants' limits are in force, and the rest stays. The log
  // says what is not as the supervisor wants it.
  std::vector<std::string> Adopt(proto::Settings theirs);

 private:
  // What a change does if engines depend on the file and it cannot be written. kIsNotTried: it leaves
  // the file to Keep() in any case.
  enum class Unwritten { kFails, kIsWrittenLater, kIsNotTried };
  // Writes the file, the last step of a change that can fail.
  absl::Status Save(const proto::Settings& settings, Unwritten unwritten = Unwritten::kFails)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The settings are in force from now on.
  void Become(proto::Settings settings) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // As SetTenant().
  absl::StatusOr<proto::TenantSetting> Change(const proto::TenantSetting& change,
                                              Unwritten unwritten = Unwritten::kFails)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the file has exactly these settings, and its readers may read it.
  bool FileHas(const proto::Settings& settings) const;
  absl::Status Write(const proto::Settings& settings) const;
  // As UnsetTenant().
  absl::Status Reset(const std::string& name, Unwritten unwritten)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the policy can serve the tenants, where no scheduler says so.
  absl::Status Check(const proto::PolicySetting& policy,
                     const std::vector<policy::Tenant>& tenants) const;
  // As Adopt(), of limits alone.
  std::vector<std::string> PutLimitsInForce(const proto::Settings& wanted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns `quota` with at most as many devices as there are. More have no other meaning.
  TenantQuota Fitting(TenantQuota quota) const;
  // Returns `settings` with those of the endpoints over them. A tenant that only endpoints name has
  // the limits `default_quota`, too.
  proto::Settings WithEndpoints(const proto::Settings& settings,
                                const TenantQuota& default_quota) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Replaces what is in force. Returns the changes, as Replace().
  absl::StatusOr<std::vector<std::string>> PutInForce(const proto::Settings& wanted,
                                                      Unwritten unwritten = Unwritten::kFails)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<DeviceScheduler*> schedulers_;
  TenantAccounts& accounts_;
  const int sm_count_;
  const size_t device_count_;
  const std::string file_;
  const gid_t readers_;
  std::function<void()> changed_;  // empty: nobody wants to know
  mutable Mutex mutex_;
  const std::unique_ptr<proto::Settings> current_ ABSL_PT_GUARDED_BY(mutex_);
  // The configuration's, as Replace() got them.
  const std::unique_ptr<proto::Settings> configured_ ABSL_PT_GUARDED_BY(mutex_);
  // As current_, for current().
  mutable Mutex published_mutex_;  // after mutex_
  const std::unique_ptr<proto::Settings> published_ ABSL_PT_GUARDED_BY(published_mutex_);
  bool written_ ABSL_GUARDED_BY(mutex_) = true;  // the file has current_
  // What TakeBack() puts in force; null: nothing.
  std::unique_ptr<proto::Settings> before_ ABSL_GUARDED_BY(mutex_) ABSL_PT_GUARDED_BY(mutex_);
  // Of the last Adopt(), so that the log has them once.
  std::vector<std::string> unfit_ ABSL_GUARDED_BY(mutex_);
  // By the endpoints' numbers.
  std::map<uint64_t, std::unique_ptr<proto::TenantSetting>> endpoints_ ABSL_GUARDED_BY(mutex_);
};

// Reads the settings that a daemon kept in `file`. Returns NotFound if there is no file, and
// InvalidArgument if it is damaged.
absl::StatusOr<proto::Settings> ReadSettings(const std::string& file);

}  // namespace detshare
