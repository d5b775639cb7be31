#include "tools/detsharectl/settings.h"

#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "policy/config/config.h"
#include "tools/detsharectl/json_text.h"
#include "tools/detsharectl/names.h"
#include "tools/text/table.h"

namespace detshare::ctl {
namespace {

using nlohmann::ordered_json;

std::string DurationText(int64_t nanoseconds) {
  return nanoseconds == 0 ? "-" : absl::FormatDuration(absl::Nanoseconds(nanoseconds));
}

std::string MemoryText(uint64_t bytes) { return bytes == 0 ? "-" : text::Bytes(bytes); }

const proto::PolicyInfo* Find(const proto::Policies& policies, const std::string& name) {
  for (const proto::PolicyInfo& policy : policies.policies()) {
    if (policy.name() == name) return &policy;
  }
  return nullptr;
}

// The parameter's value in force; "" for a policy that is not in force.
std::string ValueOf(const proto::Policies& policies, const proto::PolicyInfo& policy,
                    const proto::ParameterInfo& parameter) {
  if (policies.current().name() != policy.name()) return "";
  const auto set = policies.current().parameters().find(parameter.name());
  return set != policies.current().parameters().end() ? set->second : parameter.default_value();
}

absl::Status Wrong(const std::string& flag, const std::string& allowed, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " is ", allowed, ", not \"", text, "\""));
}

absl::StatusOr<uint64_t> ParseLimit(const std::string& flag, const std::string& text) {
  int64_t bytes = 0;
  if (!ParseSize(text, &bytes)) return Wrong(flag, "a size such as 20GiB, or 0 for no limit", text);
  return static_cast<uint64_t>(bytes);
}

absl::StatusOr<int64_t> ParseObjective(const std::string& flag, const std::string& text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration < absl::ZeroDuration() ||
      duration == absl::InfiniteDuration()) {
    return Wrong(flag, "a duration such as 30ms or 1.5s, or 0 for none", text);
  }
  return absl::ToInt64Nanoseconds(duration);
}

// The policy of this name; "": the policy in force. NotFound for an unknown name.
absl::StatusOr<const proto::PolicyInfo*> Choose(const proto::Policies& policies,
                                                const std::string& name) {
  const std::string wanted = name.empty() ? policies.current().name() : name;
  const proto::PolicyInfo* const policy = Find(policies, wanted);
  if (policy == nullptr) {
    std::string known;
    for (const proto::PolicyInfo& one : policies.policies())
      absl::StrAppend(&known, known.empty() ? "" : ", ", one.name());
    return absl::NotFoundError(
        absl::StrCat("no policy is called \"", wanted, "\"; the policies are ", known));
  }
  return policy;
}

ordered_json ToJson(const proto::Policies& policies, const proto::PolicyInfo& policy) {
  ordered_json parameters = ordered_json::array();
  for (const proto::ParameterInfo& parameter : policy.parameters()) {
    ordered_json one = {{"name", parameter.name()},
                        {"default", parameter.default_value()},
                        {"min", parameter.min()},
                        {"max", parameter.max()},
                        {"help", parameter.help()}};
    const std::string value = ValueOf(policies, policy, parameter);
    if (!value.empty()) one["value"] = value;
    parameters.push_back(std::move(one));
  }
  return {{"name", policy.name()},
          {"purpose", policy.purpose()},
          {"decides", policies.current().name() == policy.name()},
          {"parameters", std::move(parameters)}};
}

}  // namespace

std::string PoliciesText(const proto::Policies& policies, size_t width) {
  text::Table table({"", "POLICY", "FOR"});
  for (const proto::PolicyInfo& policy : policies.policies()) {
    const std::string purpose = policy.purpose().empty() ? "-" : policy.purpose();
    table.Add({policies.current().name() == policy.name() ? "*" : "", policy.name(), purpose});
  }
  const std::map<std::string, std::string> set(policies.current().parameters().begin(),
                                               policies.current().parameters().end());
  std::string values;
  for (const auto& [name, value] : set)
    absl::StrAppend(&values, values.empty() ? "" : ", ", name, "=", value);
  std::string out = table.ToString(0, width);
  if (!values.empty())
    absl::StrAppend(&out, "\nSet for ", policies.current().name(), ": ", values, "\n");
  return out;
}

absl::StatusOr<std::string> PolicyText(const proto::Policies& policies, const std::string& name,
                                       size_t width) {
  const absl::StatusOr<const proto::PolicyInfo*> chosen = Choose(policies, name);
  if (!chosen.ok()) return chosen.status();
  const proto::PolicyInfo* const policy = *chosen;
  const bool decides = policies.current().name() == policy->name();
  std::string out = absl::StrCat(policy->name(), decides ? " (in force)\n" : "\n");
  const bool shared_object = policy->name().find('/') != std::string::npos;
  if (policy->parameters_size() == 0) {
    return out + (shared_object
                      ? "Its parameters are known to the shared object only; none of them is set.\n"
                      : "It has no parameters.\n");
  }
  if (shared_object) {
    text::Table set({"PARAMETER", "VALUE"});
    for (const proto::ParameterInfo& parameter : policy->parameters())
      set.Add({parameter.name(), ValueOf(policies, *policy, parameter)});
    return absl::StrCat(out, set.ToString(),
                        "Its further parameters are known to the shared object only.\n");
  }
  text::Table table({"PARAMETER", "VALUE", "DEFAULT", "FROM", "TO", "MEANING"});
  for (const proto::ParameterInfo& parameter : policy->parameters()) {
    table.Add({parameter.name(), ValueOf(policies, *policy, parameter), parameter.default_value(),
               parameter.min(), parameter.max(), parameter.help()});
  }
  return out + table.ToString(0, width);
}

std::string PoliciesJson(const proto::Policies& policies) {
  ordered_json list = ordered_json::array();
  for (const proto::PolicyInfo& policy : policies.policies())
    list.push_back(ToJson(policies, policy));
  return JsonText(list);
}

absl::StatusOr<std::string> PolicyJson(const proto::Policies& policies, const std::string& name) {
  const absl::StatusOr<const proto::PolicyInfo*> policy = Choose(policies, name);
  if (!policy.ok()) return policy.status();
  return JsonText(ToJson(policies, **policy));
}

std::string PolicySettingJson(const proto::PolicySetting& policy) {
  const std::map<std::string, std::string> parameters(policy.parameters().begin(),
                                                      policy.parameters().end());
  return JsonText({{"name", policy.name()}, {"parameters", parameters}});
}

std::string ReloadedText(const proto::Reloaded& reloaded) {
  std::string out;
  for (const std::string& line : reloaded.changed()) absl::StrAppend(&out, "changed: ", line, "\n");
  for (const std::string& line : reloaded.restart())
    absl::StrAppend(&out, "needs a restart: ", line, "\n");
  return out.empty() ? "nothing changed\n" : out;
}

std::string ReloadedJson(const proto::Reloaded& reloaded) {
  using Lines = std::vector<std::string>;
  return JsonText({{"changed", Lines(reloaded.changed().begin(), reloaded.changed().end())},
                   {"restart", Lines(reloaded.restart().begin(), reloaded.restart().end())}});
}

std::string TenantsText(const proto::Tenants& tenants, size_t width) {
  if (tenants.tenants_size() == 0) return "No tenant has settings.\n";
  text::Table table({"TENANT", "CLASS", "WEIGHT", "SHARE", "EXCLUSIVE", "SMS", "SLO LATENCY",
                     "SLO TTFT", "SLO TPOT", "MEMORY", "PINNED", "SESSIONS", "DEVICES"});
  for (const proto::TenantSetting& tenant : tenants.tenants()) {
    const bool bounds = tenant.min_sms() != 0 || tenant.max_sms() != 0;
    table.Add({tenant.name(), tenant.tenant_class(), absl::StrCat(tenant.weight()),
               tenant.sm_percent() == 0 ? "-" : absl::StrCat(tenant.sm_percent(), "%"),
               tenant.exclusive() ? "yes" : "-",
               !bounds ? "-"
                       : absl::StrCat(tenant.min_sms(), "..",
                                      tenant.max_sms() == 0 ? "" : absl::StrCat(tenant.max_sms())),
               DurationText(tenant.slo_latency_ns()), DurationText(tenant.slo_ttft_ns()),
               DurationText(tenant.slo_tpot_ns()), MemoryText(tenant.memory()),
               MemoryText(tenant.pinned_memory()),
               tenant.sessions() == 0 ? "-" : absl::StrCat(tenant.sessions()),
               tenant.devices() == 0 ? "-" : absl::StrCat(tenant.devices())});
  }
  return table.ToString(0, width);
}

std::string UnsetText(const std::string& name, const proto::Tenants& in_force) {
  if (in_force.tenants_size() == 0)
    return absl::StrCat("Tenant ", name, " has no settings any more.\n");
  return TenantsText(in_force);
}

std::string NoteOfNewTenant(const proto::Tenants& known, const std::string& name) {
  std::vector<std::string> names;
  for (const proto::TenantSetting& tenant : known.tenants()) {
    if (tenant.name() == name) return "";
    names.push_back(tenant.name());
  }
  return absl::StrCat(
      "Note: tenant ", name, " had no settings before",
      names.empty() ? "" : absl::StrCat("; these tenants have some: ", absl::StrJoin(names, ", ")),
      ". Undo: detsharectl tenant unset ", name.starts_with('-') ? "-- " : "", name, "\n",
      HintAt(name, names));
}

std::string TenantsJson(const proto::Tenants& tenants) {
  ordered_json list = ordered_json::array();
  for (const proto::TenantSetting& tenant : tenants.tenants()) {
    list.push_back({{"name", tenant.name()},
                    {"class", tenant.tenant_class()},
                    {"weight", tenant.weight()},
                    {"sm_percent", tenant.sm_percent()},
                    {"exclusive", tenant.exclusive()},
                    {"min_sms", tenant.min_sms()},
                    {"max_sms", tenant.max_sms()},
                    {"slo_latency_ns", tenant.slo_latency_ns()},
                    {"slo_ttft_ns", tenant.slo_ttft_ns()},
                    {"slo_tpot_ns", tenant.slo_tpot_ns()},
                    {"memory", tenant.memory()},
                    {"pinned_memory", tenant.pinned_memory()},
                    {"sessions", tenant.sessions()},
                    {"devices", tenant.devices()}});
  }
  return JsonText(list);
}

absl::Status AddParameters(const std::vector<std::string>& texts, proto::PolicySetting* setting) {
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) return Wrong("--param", "NAME=VALUE", text);
    const std::string name = text.substr(0, equals);
    if (setting->parameters().contains(name))
      return absl::InvalidArgumentError(absl::StrCat("--param: ", name, " is given twice"));
    (*setting->mutable_parameters())[name] = text.substr(equals + 1);
  }
  return absl::OkStatus();
}

absl::StatusOr<proto::TenantSetting> ToSetting(const TenantFlags& flags) {
  proto::TenantSetting setting;
  setting.set_name(flags.name);
  if (!flags.tenant_class.empty()) setting.set_tenant_class(flags.tenant_class);
  if (!flags.weight.empty()) {
    double weight = 0;
    if (!absl::SimpleAtod(flags.weight, &weight))
      return Wrong("--weight", "a number above 0", flags.weight);
    setting.set_weight(weight);
  }
  if (!flags.share.empty()) {
    int share = 0;
    std::string text = flags.share;
    if (text.back() == '%') text.pop_back();
    if (!absl::SimpleAtoi(text, &share))
      return Wrong("--share", "a whole number of 0 to 100 percent", flags.share);
    setting.set_sm_percent(share);
  }
  if (!flags.exclusive.empty()) {
    if (flags.exclusive != "on" && flags.exclusive != "off")
      return Wrong("--exclusive", "on or off", flags.exclusive);
    setting.set_exclusive(flags.exclusive == "on");
  }
  if (!flags.memory.empty()) {
    const absl::StatusOr<uint64_t> bytes = ParseLimit("--memory", flags.memory);
    if (!bytes.ok()) return bytes.status();
    setting.set_memory(*bytes);
  }
  if (!flags.pinned_memory.empty()) {
    const absl::StatusOr<uint64_t> bytes = ParseLimit("--pinned-memory", flags.pinned_memory);
    if (!bytes.ok()) return bytes.status();
    setting.set_pinned_memory(*bytes);
  }
  if (!flags.sessions.empty()) {
    uint64_t sessions = 0;
    if (!absl::SimpleAtoi(flags.sessions, &sessions))
      return Wrong("--sessions", "a number, or 0 for no limit", flags.sessions);
    setting.set_sessions(sessions);
  }
  if (!flags.devices.empty()) {
    uint64_t devices = 0;
    if (!absl::SimpleAtoi(flags.devices, &devices))
      return Wrong("--devices", "a number, or 0 for all", flags.devices);
    setting.set_devices(devices);
  }
  if (!flags.sms.empty()) {
    // Takes "32..132", "32..", "..64" and "64".
    const size_t dots = flags.sms.find("..");
    const std::string min_text = flags.sms.substr(0, dots);
    const std::string max_text = dots == std::string::npos ? min_text : flags.sms.substr(dots + 2);
    int min = 0, max = 0;
    if ((!min_text.empty() && !absl::SimpleAtoi(min_text, &min)) ||
        (!max_text.empty() && !absl::SimpleAtoi(max_text, &max)) ||
        (min_text.empty() && max_text.empty())) {
      return Wrong("--sms", "MIN..MAX, MIN.., ..MAX or one number; 0 is no bound", flags.sms);
    }
    setting.set_min_sms(min);
    setting.set_max_sms(max);
  }
  const struct {
    const char* flag;
    const std::string& text;
    void (proto::TenantSetting::*set)(int64_t);
  } objectives[] = {
      {"--slo-latency", flags.slo_latency, &proto::TenantSetting::set_slo_latency_ns},
      {"--slo-ttft", flags.slo_ttft, &proto::TenantSetting::set_slo_ttft_ns},
      {"--slo-tpot", flags.slo_tpot, &proto::TenantSetting::set_slo_tpot_ns},
  };
  for (const auto& objective : objectives) {
    if (objective.text.empty()) continue;
    absl::StatusOr<int64_t> value = ParseObjective(objective.flag, objective.text);
    if (!value.ok()) return value.status();
    (setting.*objective.set)(*value);
  }
  return setting;
}

}  // namespace detshare::ctl
