#include "server/services/settings_store.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coroutine_runtime/device_scheduler.h"
#include "policy/config/config.h"
#include "policy/registry.h"
#include "policy/status_macros.h"
#include "policy/tenants.h"
#include "proto/admin.pb.h"
#include "server/base/kept_file.h"
#include "server/base/logging.h"
#include "server/base/printable.h"

namespace detshare {
namespace {

constexpr policy::Nanoseconds kLongestObjective = 3600 * policy::kSecond;
constexpr size_t kMaxNameBytes = 64;  // of a tenant's name in a message
constexpr size_t kMaxFileBytes = 4 << 20;
constexpr uint64_t kMaxMemory = uint64_t{1} << 52;
constexpr uint64_t kMaxSessions = 1'000'000;

// Makes one policy for each device, and at least one, so that a mistake is found.
absl::StatusOr<std::vector<std::unique_ptr<policy::Policy>>> MakePolicies(
    const proto::PolicySetting& setting, size_t count) {
  policy::Options options;
  options.parameters = {setting.parameters().begin(), setting.parameters().end()};
  std::vector<std::unique_ptr<policy::Policy>> policies;
  for (size_t i = 0; i < std::max<size_t>(count, 1); ++i) {
    DETSHARE_ASSIGN_OR_RETURN(
        std::unique_ptr<policy::Policy> made,
        policy::CreatePolicy(setting.name(), options,
                             [](const std::string& text) { LogWarning(text); }));
    policies.push_back(std::move(made));
  }
  return policies;
}

absl::StatusOr<std::vector<policy::Tenant>> ToTenants(const proto::Settings& settings,
                                                      int sm_count) {
  std::vector<policy::Tenant> tenants;
  for (const proto::TenantSetting& setting : settings.tenants()) {
    DETSHARE_ASSIGN_OR_RETURN(policy::Tenant tenant, ToTenant(setting, sm_count));
    tenants.push_back(std::move(tenant));
  }
  return tenants;
}

std::string FileText(const proto::Settings& settings) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(settings, &text);
  return text;
}

std::string TextOf(const proto::PolicySetting& policy) {
  std::string text = policy.name();
  const std::map<std::string, std::string> parameters(policy.parameters().begin(),
                                                      policy.parameters().end());
  for (const auto& [name, value] : parameters) absl::StrAppend(&text, " ", name, "=", value);
  return text;
}

const proto::TenantSetting* Find(const proto::Settings& settings, const std::string& name) {
  for (const proto::TenantSetting& tenant : settings.tenants()) {
    if (tenant.name() == name) return &tenant;
  }
  return nullptr;
}

void SetLimits(const TenantQuota& quota, proto::TenantSetting* setting) {
  setting->set_memory(quota.memory);
  setting->set_pinned_memory(quota.pinned_memory);
  setting->set_sessions(quota.sessions);
  setting->set_devices(quota.devices);
}

// Returns the tenant's place in the settings. If there is none, it is made, with the limits.
proto::TenantSetting* Place(proto::Settings& settings, const std::string& name,
                            const TenantQuota& quota) {
  for (proto::TenantSetting& tenant : *settings.mutable_tenants()) {
    if (tenant.name() == name) return &tenant;
  }
  proto::TenantSetting* const place = settings.add_tenants();
  place->set_name(name);
  SetLimits(quota, place);
  return place;
}

// A tenant's quota from its setting. A number of devices that the setting has already may stay: the
// daemon may have fewer cards than when it was set.
absl::StatusOr<TenantQuota> QuotaOf(const proto::TenantSetting& setting,
                                    const proto::Settings& current, size_t device_count) {
  const proto::TenantSetting* const known = Find(current, setting.name());
  const bool stays = known != nullptr && known->devices() == setting.devices();
  return ToQuota(setting, stays ? std::numeric_limits<size_t>::max() : device_count);
}

std::string SmsText(const proto::TenantSetting& tenant) {
  return tenant.min_sms() == 0 && tenant.max_sms() == 0
             ? "any"
             : absl::StrCat(tenant.min_sms(), "..",
                            tenant.max_sms() == 0 ? "" : absl::StrCat(tenant.max_sms()));
}

std::string LimitText(uint64_t limit) { return limit == 0 ? "no limit" : absl::StrCat(limit); }
std::string MemoryText(uint64_t limit) {
  return limit == 0 ? "no limit" : SizeText(static_cast<int64_t>(limit));
}

// Both arguments have the form that ToSetting() returns.
std::vector<std::string> Differences(const proto::Settings& before, const proto::Settings& after) {
  std::vector<std::string> lines;
  if (TextOf(before.policy()) != TextOf(after.policy())) {
    lines.push_back(
        absl::StrCat("[policy]: ", TextOf(before.policy()), " -> ", TextOf(after.policy())));
  }
  for (const proto::TenantSetting& next : after.tenants()) {
    const proto::TenantSetting none = ToSetting(policy::Tenant{}, TenantQuota{});
    const proto::TenantSetting* const known = Find(before, next.name());
    const proto::TenantSetting& old = known != nullptr ? *known : none;
    std::string line;
    const auto say = [&line](const char* what, const std::string& from, const std::string& to) {
      if (from != to) absl::StrAppend(&line, line.empty() ? "" : ", ", what, " ", from, " -> ", to);
    };
    say("class", old.tenant_class(), next.tenant_class());
    say("weight", absl::StrCat(old.weight()), absl::StrCat(next.weight()));
    say("sm_percent", absl::StrCat(old.sm_percent()), absl::StrCat(next.sm_percent()));
    say("exclusive", old.exclusive() ? "true" : "false", next.exclusive() ? "true" : "false");
    say("sms", SmsText(old), SmsText(next));
    say("slo_latency", DurationText(old.slo_latency_ns()), DurationText(next.slo_latency_ns()));
    say("slo_ttft", DurationText(old.slo_ttft_ns()), DurationText(next.slo_ttft_ns()));
    say("slo_tpot", DurationText(old.slo_tpot_ns()), DurationText(next.slo_tpot_ns()));
    say("memory", MemoryText(old.memory()), MemoryText(next.memory()));
    say("pinned_memory", MemoryText(old.pinned_memory()), MemoryText(next.pinned_memory()));
    say("sessions", LimitText(old.sessions()), LimitText(next.sessions()));
    say("devices", LimitText(old.devices()), LimitText(next.devices()));
    if (known == nullptr) line = line.empty() ? "is new" : absl::StrCat("is new: ", line);
    if (!line.empty()) lines.push_back(absl::StrCat("[[tenant]] ", next.name(), ": ", line));
  }
  for (const proto::TenantSetting& old : before.tenants()) {
    if (Find(after, old.name()) == nullptr)
      lines.push_back(absl::StrCat("[[tenant]] ", old.name(), ": is removed"));
  }
  return lines;
}

// Returns the tenant with its fields that are valid, and adds a line for each other one. The name is
// valid.
proto::TenantSetting ValidFields(const proto::TenantSetting& tenant, int sm_count,
                                 std::vector<std::string>* lines) {
  const google::protobuf::Descriptor& fields = *proto::TenantSetting::descriptor();
  const google::protobuf::Reflection& reflection = *proto::TenantSetting::GetReflection();
  proto::TenantSetting valid;
  valid.set_name(tenant.name());
  for (int i = 0; i < fields.field_count(); ++i) {
    proto::TenantSetting alone = tenant;
    for (int other = 0; other < fields.field_count(); ++other) {
      if (other != i) reflection.ClearField(&alone, fields.field(other));
    }
    proto::TenantSetting more = valid;
    more.MergeFrom(alone);
    const absl::Status status = ToTenant(more, sm_count).status();
    if (status.ok()) {
      valid = std::move(more);
    } else {
      lines->push_back(absl::StrCat(std::string(status.message()), ": ", fields.field(i)->name(),
                                    " is left out"));
    }
  }
  return valid;
}

absl::Status OutOfRange(const std::string& tenant, const char* what, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat("tenant ", tenant, ": ", what, " is ", allowed));
}

}  // namespace

std::string NameOf(policy::TenantClass tenant_class) {
  switch (tenant_class) {
    case policy::TenantClass::kLatency:
      return "latency";
    case policy::TenantClass::kBatch:
      return "batch";
    case policy::TenantClass::kUnset:
      break;
  }
  return "unset";
}

std::string ChangeText(const proto::TenantSetting& change) {
  std::string text;
  const auto say = [&text](bool changes, const char* what, const std::string& value) {
    if (changes) absl::StrAppend(&text, text.empty() ? "" : ", ", what, " ", value);
  };
  say(change.has_tenant_class(), "class", change.tenant_class());
  say(change.has_weight(), "weight", absl::StrCat(change.weight()));
  say(change.has_sm_percent(), "sm_percent", absl::StrCat(change.sm_percent()));
  say(change.has_exclusive(), "exclusive", change.exclusive() ? "true" : "false");
  say(change.has_min_sms() || change.has_max_sms(), "sms", SmsText(change));
  say(change.has_slo_latency_ns(), "slo_latency", DurationText(change.slo_latency_ns()));
  say(change.has_slo_ttft_ns(), "slo_ttft", DurationText(change.slo_ttft_ns()));
  say(change.has_slo_tpot_ns(), "slo_tpot", DurationText(change.slo_tpot_ns()));
  say(change.has_memory(), "memory", MemoryText(change.memory()));
  say(change.has_pinned_memory(), "pinned_memory", MemoryText(change.pinned_memory()));
  say(change.has_sessions(), "sessions", LimitText(change.sessions()));
  say(change.has_devices(), "devices", LimitText(change.devices()));
  return text;
}

absl::StatusOr<policy::Tenant> ToTenant(const proto::TenantSetting& setting, int sm_count) {
  if (!IsTenantName(setting.name())) {
    return absl::InvalidArgumentError(
        "a tenant's name has 1 to 64 letters, digits, or any of -_.@");
  }
  policy::Tenant tenant;
  tenant.name = setting.name();
  if (setting.tenant_class() == "latency") {
    tenant.tenant_class = policy::TenantClass::kLatency;
  } else if (setting.tenant_class() == "batch") {
    tenant.tenant_class = policy::TenantClass::kBatch;
  } else if (!setting.tenant_class().empty() && setting.tenant_class() != "unset") {
    return OutOfRange(tenant.name, "the class", "latency, batch or unset");
  }
  if (setting.has_weight()) {
    tenant.weight = setting.weight();
    if (!(tenant.weight > 0) || !(tenant.weight <= policy::kMaxWeight))
      return OutOfRange(tenant.name, "the weight", "above 0, and at most 1000000");
  }
  tenant.sm_percent = setting.sm_percent();
  if (tenant.sm_percent < 0 || tenant.sm_percent > 100)
    return OutOfRange(tenant.name, "the share of the SMs", "0 to 100 percent");
  tenant.min_sms = setting.min_sms();
  tenant.max_sms = setting.max_sms();
  if (tenant.min_sms < 0 || tenant.min_sms > sm_count || tenant.max_sms < 0 ||
      tenant.max_sms > sm_count || (tenant.max_sms != 0 && tenant.min_sms > tenant.max_sms)) {
    return OutOfRange(tenant.name, "the number of SMs",
                      absl::StrCat("MIN..MAX, from 0 (no bound) to ", sm_count));
  }
  tenant.exclusive = setting.exclusive();
  tenant.slo_latency = setting.slo_latency_ns();
  tenant.slo_ttft = setting.slo_ttft_ns();
  tenant.slo_tpot = setting.slo_tpot_ns();
  for (const policy::Nanoseconds objective :
       {tenant.slo_latency, tenant.slo_ttft, tenant.slo_tpot}) {
    if (objective < 0 || objective > kLongestObjective)
      return OutOfRange(tenant.name, "an objective", "0 (none) to 1h");
  }
  return tenant;
}

absl::StatusOr<TenantQuota> ToQuota(const proto::TenantSetting& setting, size_t device_count) {
  if (setting.memory() > kMaxMemory || setting.pinned_memory() > kMaxMemory)
    return OutOfRange(setting.name(), "a limit of memory", "0 (none) to 4096 TiB");
  if (setting.sessions() > kMaxSessions)
    return OutOfRange(setting.name(), "the number of sessions", "0 (no limit) to 1000000");
  if (setting.devices() > device_count) {
    return OutOfRange(setting.name(), "the number of devices",
                      absl::StrCat("0 (all) to ", device_count, ", which this host has"));
  }
  return TenantQuota{setting.memory(), setting.pinned_memory(), setting.sessions(),
                     setting.devices()};
}

proto::TenantSetting ToSetting(const policy::Tenant& tenant, const TenantQuota& quota) {
  proto::TenantSetting setting;
  setting.set_name(tenant.name);
  setting.set_tenant_class(NameOf(tenant.tenant_class));
  setting.set_weight(tenant.weight);
  setting.set_exclusive(tenant.exclusive);
  setting.set_sm_percent(tenant.sm_percent);
  setting.set_min_sms(tenant.min_sms);
  setting.set_max_sms(tenant.max_sms);
  setting.set_slo_latency_ns(tenant.slo_latency);
  setting.set_slo_ttft_ns(tenant.slo_ttft);
  setting.set_slo_tpot_ns(tenant.slo_tpot);
  SetLimits(quota, &setting);
  return setting;
}

std::vector<std::string> FitSettings(int sm_count, size_t device_count, proto::Settings* settings) {
  std::vector<std::string> lines;
  proto::Settings fit = *settings;
  fit.clear_tenants();
  for (proto::TenantSetting tenant : settings->tenants()) {
    if (!IsTenantName(tenant.name())) {
      lines.push_back(absl::StrCat("tenant ", Printable(tenant.name(), kMaxNameBytes),
                                   " is left out: its name is not valid"));
      continue;
    }
    const auto lowered = [&](const char* what, auto value, decltype(value) most) {
      if (value <= most) return value;
      lines.push_back(absl::StrCat("tenant ", tenant.name(), ": ", what, " ", value,
                                   " is lowered to ", most, ", the most that is allowed here"));
      return most;
    };
    if (tenant.has_min_sms()) tenant.set_min_sms(lowered("min_sms", tenant.min_sms(), sm_count));
    if (tenant.has_max_sms()) tenant.set_max_sms(lowered("max_sms", tenant.max_sms(), sm_count));
    if (tenant.has_memory()) tenant.set_memory(lowered("memory", tenant.memory(), kMaxMemory));
    if (tenant.has_pinned_memory())
      tenant.set_pinned_memory(lowered("pinned_memory", tenant.pinned_memory(), kMaxMemory));
    if (tenant.has_sessions())
      tenant.set_sessions(lowered("sessions", tenant.sessions(), kMaxSessions));
    if (tenant.has_devices())
      tenant.set_devices(lowered("devices", tenant.devices(), uint64_t{device_count}));
    if (!ToTenant(tenant, sm_count).ok()) tenant = ValidFields(tenant, sm_count, &lines);
    *fit.add_tenants() = std::move(tenant);
  }
  *settings = std::move(fit);
  return lines;
}

proto::Settings SettingsOf(const ServerOptions& options) {
  proto::Settings settings;
  settings.mutable_policy()->set_name(options.policy);
  for (const auto& [name, value] : options.policy_parameters)
    (*settings.mutable_policy()->mutable_parameters())[name] = value;
  for (const policy::Tenant& tenant : options.tenants) {
    const auto quota = options.tenant_quotas.find(tenant.name);
    *settings.add_tenants() =
        ToSetting(tenant, quota != options.tenant_quotas.end() ? quota->second : TenantQuota());
  }
  return settings;
}

std::string SettingsFile(const std::string& runtime_directory) {
  return runtime_directory + "/settings";
}

SettingsStore::SettingsStore(std::vector<DeviceScheduler*> schedulers, TenantAccounts& accounts,
                             int sm_count, const proto::Settings& initial, std::string file,
                             gid_t readers)
    : schedulers_(std::move(schedulers)),
      accounts_(accounts),
      sm_count_(sm_count),
      device_count_(schedulers_.empty() ? std::numeric_limits<size_t>::max() : schedulers_.size()),
      file_(std::move(file)),
      readers_(readers),
      current_(std::make_unique<proto::Settings>(initial)),
      configured_(std::make_unique<proto::Settings>(initial)),
      published_(std::make_unique<proto::Settings>(initial)) {}

SettingsStore::~SettingsStore() = default;

proto::Settings SettingsStore::current() const {
  const MutexLock lock(&published_mutex_);
  return *published_;
}

void SettingsStore::Become(proto::Settings settings) {
  *current_ = std::move(settings);
  {
    const MutexLock lock(&published_mutex_);
    *published_ = *current_;
  }
  if (changed_) changed_();
}

absl::Status SettingsStore::Keep() {
  const MutexLock lock(&mutex_);
  if (file_.empty()) return absl::OkStatus();
  const absl::Status kept = Write(*current_);
  written_ = kept.ok() || FileHas(*current_);
  return written_ ? absl::OkStatus() : absl::ResourceExhaustedError(kept.message());
}

bool SettingsStore::written() const {
  const MutexLock lock(&mutex_);
  return written_;
}

bool SettingsStore::FileHas(const proto::Settings& settings) const {
  struct stat found {};
  if (readers_ != 0 && (stat(file_.c_str(), &found) != 0 || found.st_gid != readers_)) return false;
  const absl::StatusOr<std::string> text = ReadKeptFile(file_, kMaxFileBytes);
  return text.ok() && *text == FileText(settings);
}

absl::Status SettingsStore::Write(const proto::Settings& settings) const {
  return WriteKeptFile(file_, FileText(settings), readers_);
}

absl::Status SettingsStore::Check(const proto::PolicySetting& policy,
                                  const std::vector<policy::Tenant>& tenants) const {
  if (!schedulers_.empty()) return absl::OkStatus();
  const auto made = MakePolicies(policy, 1);
  // SetPolicy() refuses such a policy. Limits hold under a policy that exists no more, too.
  return made.ok() ? made->front()->Check(tenants) : absl::OkStatus();
}

absl::Status SettingsStore::SetPolicy(const proto::PolicySetting& setting) {
  const MutexLock lock(&mutex_);
  DETSHARE_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<policy::Policy>> wanted,
                            MakePolicies(setting, schedulers_.size()));
  DETSHARE_ASSIGN_OR_RETURN(const std::vector<policy::Tenant> tenants,
                            ToTenants(*current_, sm_count_));
  DETSHARE_RETURN_IF_ERROR(Check(setting, tenants));
  absl::StatusOr<std::vector<std::unique_ptr<policy::Policy>>> before =
      MakePolicies(current_->policy(), schedulers_.size());
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    absl::Status set = schedulers_[i]->SetPolicy(std::move(wanted[i]));
    if (set.ok()) continue;
    for (size_t j = 0; j < i && before.ok(); ++j)
      schedulers_[j]->SetPolicy(std::move((*before)[j])).IgnoreError();
    return set;
  }
  proto::Settings next = *current_;
  *next.mutable_policy() = setting;
  DETSHARE_RETURN_IF_ERROR(Save(next));
  before_ = std::make_unique<proto::Settings>(*current_);
  Become(std::move(next));
  return absl::OkStatus();
}

absl::StatusOr<proto::TenantSetting> SettingsStore::SetTenant(const proto::TenantSetting& change) {
  const MutexLock lock(&mutex_);
  auto before = std::make_unique<proto::Settings>(*current_);
  DETSHARE_ASSIGN_OR_RETURN(proto::TenantSetting in_force, Change(change));
  before_ = std::move(before);
  return in_force;
}

void SettingsStore::TakeBack() {
  const MutexLock lock(&mutex_);
  if (before_ == nullptr) {
    LogWarning(
        "refused settings stay, because others have changed since: detsharectl tenant set and "
        "policy set change them");
    return;
  }
  const proto::Settings before = *before_;
  if (const absl::Status back = PutInForce(before, Unwritten::kIsWrittenLater).status(); !back.ok())
    LogWarning("refused settings stay: ", std::string(back.message()));
}

absl::StatusOr<proto::TenantSetting> SettingsStore::SetForEndpoint(
    uint64_t endpoint, const proto::TenantSetting& change) {
  const MutexLock lock(&mutex_);
  DETSHARE_ASSIGN_OR_RETURN(proto::TenantSetting in_force, Change(change));
  endpoints_[endpoint] = std::make_unique<proto::TenantSetting>(change);
  return in_force;
}

absl::Status SettingsStore::RestoreForEndpoint(uint64_t endpoint,
                                               const proto::TenantSetting& change) {
  const MutexLock lock(&mutex_);
  DETSHARE_RETURN_IF_ERROR(Change(change, Unwritten::kIsNotTried).status());
  endpoints_[endpoint] = std::make_unique<proto::TenantSetting>(change);
  return absl::OkStatus();
}

absl::Status SettingsStore::UnsetForEndpoint(uint64_t endpoint) {
  const MutexLock lock(&mutex_);
  const auto found = endpoints_.find(endpoint);
  if (found == endpoints_.end()) return absl::OkStatus();
  const std::string tenant = found->second->name();
  endpoints_.erase(found);
  return Reset(tenant, Unwritten::kIsWrittenLater);
}

absl::Status SettingsStore::UnsetTenant(const std::string& name) {
  const MutexLock lock(&mutex_);
  if (Find(*current_, name) != nullptr) return Reset(name, Unwritten::kFails);
  std::vector<std::string> names;
  for (const proto::TenantSetting& tenant : current_->tenants()) names.push_back(tenant.name());
  return absl::NotFoundError(absl::StrCat(
      "tenant ", Printable(name, kMaxNameBytes), " has no settings",
      names.empty() ? std::string("; no tenant has")
                    : absl::StrCat("; these tenants have some: ", absl::StrJoin(names, ", "))));
}

absl::Status SettingsStore::Reset(const std::string& name, Unwritten unwritten) {
  const proto::Settings without = WithEndpoints(*configured_, accounts_.default_quota());
  const proto::TenantSetting* const left = Find(without, name);
  proto::Settings wanted = *current_;
  auto* const tenants = wanted.mutable_tenants();
  tenants->erase(std::remove_if(tenants->begin(), tenants->end(),
                                [&](const auto& one) { return one.name() == name; }),
                 tenants->end());
  if (left != nullptr) *tenants->Add() = *left;
  return PutInForce(wanted, unwritten).status();
}

TenantQuota SettingsStore::Fitting(TenantQuota quota) const {
  quota.devices = std::min<uint64_t>(quota.devices, device_count_);
  return quota;
}

proto::Settings SettingsStore::WithEndpoints(const proto::Settings& settings,
                                             const TenantQuota& default_quota) const {
  const TenantQuota quota = Fitting(default_quota);
  proto::Settings all = settings;
  for (const auto& [endpoint, change] : endpoints_)
    Place(all, change->name(), quota)->MergeFrom(*change);
  return all;
}

absl::StatusOr<proto::TenantSetting> SettingsStore::Change(const proto::TenantSetting& change,
                                                           Unwritten unwritten) {
  proto::Settings wanted = *current_;
  proto::TenantSetting* const place =
      Place(wanted, change.name(), Fitting(accounts_.default_quota()));
  if (wanted.tenants_size() > kMaxTenants)
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", kMaxTenants, " tenants already"));
  place->MergeFrom(change);
  DETSHARE_ASSIGN_OR_RETURN(policy::Tenant tenant, ToTenant(*place, sm_count_));
  DETSHARE_ASSIGN_OR_RETURN(const TenantQuota quota, QuotaOf(*place, *current_, device_count_));
  *place = ToSetting(tenant, quota);
  const proto::TenantSetting result = *place;
  DETSHARE_ASSIGN_OR_RETURN(const std::vector<policy::Tenant> tenants,
                            ToTenants(wanted, sm_count_));
  DETSHARE_RETURN_IF_ERROR(Check(wanted.policy(), tenants));
  const absl::StatusOr<std::vector<policy::Tenant>> before = ToTenants(*current_, sm_count_);
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    absl::Status set = schedulers_[i]->SetTenants(tenants);
    if (set.ok()) continue;
    for (size_t j = 0; j < i && before.ok(); ++j) schedulers_[j]->SetTenants(*before).IgnoreError();
    return set;
  }
  DETSHARE_RETURN_IF_ERROR(Save(wanted, unwritten));
  accounts_.Set(result.name(), quota);
  before_.reset();
  Become(std::move(wanted));
  return result;
}

absl::StatusOr<std::vector<std::string>> SettingsStore::Replace(
    const proto::Settings& wanted, std::optional<TenantQuota> default_quota) {
  const MutexLock lock(&mutex_);
  const TenantQuota quota = default_quota.value_or(accounts_.default_quota());
  DETSHARE_ASSIGN_OR_RETURN(std::vector<std::string> changes,
                            PutInForce(WithEndpoints(wanted, quota)));
  accounts_.SetDefault(quota);
  *configured_ = wanted;
  return changes;
}

std::vector<std::string> SettingsStore::Adopt(proto::Settings theirs) {
  const MutexLock lock(&mutex_);
  std::vector<std::string> unfit = FitSettings(sm_count_, device_count_, &theirs);
  absl::StatusOr<std::vector<std::string>> changes = PutInForce(theirs);
  if (!changes.ok()) {
    unfit.push_back(absl::StrCat("of the supervisor's settings only the tenants' limits are used: ",
                                 std::string(changes.status().message())));
    changes = PutLimitsInForce(theirs);
  }
  if (unfit != unfit_) {
    for (const std::string& line : unfit) LogWarning(line);
  }
  unfit_ = std::move(unfit);
  *configured_ = *current_;
  return *std::move(changes);
}

std::vector<std::string> SettingsStore::PutLimitsInForce(const proto::Settings& wanted) {
  proto::Settings next = *current_;
  for (const proto::TenantSetting& tenant : wanted.tenants()) {
    const TenantQuota quota{tenant.memory(), tenant.pinned_memory(), tenant.sessions(),
                            tenant.devices()};
    if (Find(next, tenant.name()) == nullptr) {
      policy::Tenant unset;
      unset.name = tenant.name();
      *next.add_tenants() = ToSetting(unset, quota);
    }
    SetLimits(quota, Place(next, tenant.name(), quota));
    accounts_.Set(tenant.name(), quota);
  }
  std::vector<std::string> changes = Differences(*current_, next);
  Save(next, Unwritten::kIsWrittenLater).IgnoreError();
  Become(std::move(next));
  return changes;
}

absl::StatusOr<std::vector<std::string>> SettingsStore::PutInForce(const proto::Settings& wanted,
                                                                   Unwritten unwritten) {
  if (wanted.tenants_size() > kMaxTenants) {
    return absl::InvalidArgumentError(absl::StrCat(
        wanted.tenants_size(), " tenants are too many: at most ", kMaxTenants, " are allowed"));
  }
  DETSHARE_ASSIGN_OR_RETURN(const std::vector<policy::Tenant> tenants,
                            ToTenants(wanted, sm_count_));
  proto::Settings next;
  *next.mutable_policy() = wanted.policy();
  std::map<std::string, TenantQuota> quotas;
  for (int i = 0; i < wanted.tenants_size(); ++i) {
    DETSHARE_ASSIGN_OR_RETURN(const TenantQuota quota,
                              QuotaOf(wanted.tenants(i), *current_, device_count_));
    *next.add_tenants() = ToSetting(tenants[static_cast<size_t>(i)], quota);
    quotas[wanted.tenants(i).name()] = quota;
  }
  DETSHARE_RETURN_IF_ERROR(Check(next.policy(), tenants));
  std::vector<std::string> changes = Differences(*current_, next);
  if (changes.empty()) {
    if (!written_) DETSHARE_RETURN_IF_ERROR(Save(*current_, unwritten));
    return changes;
  }

  // A policy that stays the same keeps what it has learned.
  const bool same_policy = TextOf(current_->policy()) == TextOf(next.policy());
  auto policies = MakePolicies(next.policy(), schedulers_.size());
  if (!policies.ok()) return policies.status();
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    absl::Status set =
        same_policy ? schedulers_[i]->SetTenants(tenants)
                    : schedulers_[i]->SetPolicyAndTenants(std::move((*policies)[i]), tenants);
    if (set.ok()) continue;
    const auto before = ToTenants(*current_, sm_count_);
    auto policies_before = MakePolicies(current_->policy(), schedulers_.size());
    for (size_t j = 0; j < i && before.ok() && policies_before.ok(); ++j) {
      (same_policy ? schedulers_[j]->SetTenants(*before)
                   : schedulers_[j]->SetPolicyAndTenants(std::move((*policies_before)[j]), *before))
          .IgnoreError();
    }
    return set;
  }
  DETSHARE_RETURN_IF_ERROR(Save(next, unwritten));
  for (const auto& [name, quota] : quotas) accounts_.Set(name, quota);
  for (const proto::TenantSetting& old : current_->tenants()) {
    if (quotas.count(old.name()) == 0) accounts_.Unset(old.name());
  }
  before_.reset();
  Become(std::move(next));
  return changes;
}

absl::Status SettingsStore::Save(const proto::Settings& settings, Unwritten unwritten) {
  if (file_.empty()) return absl::OkStatus();
  if (unwritten == Unwritten::kIsNotTried) {
    written_ = false;
    return absl::OkStatus();
  }
  const absl::Status written = Write(settings);
  const std::string why(written.message());
  if (written.ok()) {
    written_ = true;
  } else if (!schedulers_.empty()) {
    LogWarning("the settings are not kept: ", why,
               "; a daemon that replaces this one will begin with its flags");
  } else if (unwritten == Unwritten::kFails) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the settings stay as they were, because engines would not get others: ", why,
                     "; free space there and try again"));
  } else {
    written_ = false;
    LogWarning("engines get changed settings as soon as they can be written: ", why,
               "; free space there");
  }
  return absl::OkStatus();
}

absl::StatusOr<proto::Settings> ReadSettings(const std::string& file) {
  DETSHARE_ASSIGN_OR_RETURN(const std::string text, ReadKeptFile(file, kMaxFileBytes));
  proto::Settings settings;
  if (!google::protobuf::TextFormat::ParseFromString(text, &settings))
    return absl::InvalidArgumentError(absl::StrCat(file, " is damaged"));
  return settings;
}

}  // namespace detshare
