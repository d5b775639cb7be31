#include "tools/detsharectl/config.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/config/accounts.h"
#include "policy/config/config_text.h"
#include "tools/detsharectl/json_text.h"

namespace detshare::ctl {
namespace {

using nlohmann::ordered_json;

constexpr int kExitMistakes = 1;

std::string FileOr(const std::string& file) { return file.empty() ? kDefaultConfigFile : file; }

ordered_json SettingJson(const ConfigSetting& setting, const Config& config) {
  if (!setting.computed.empty() && IsDefault(setting, config)) return nullptr;
  if (const auto* text = std::get_if<std::string Config::*>(&setting.field)) return config.*(*text);
  return config.*std::get<int64_t Config::*>(setting.field);
}

ordered_json TenantJson(const TenantConfig& config) {
  const policy::Tenant& tenant = config.tenant;
  ordered_json json = {{"name", tenant.name}};
  json["class"] = nullptr;
  if (tenant.tenant_class == policy::TenantClass::kLatency) json["class"] = "latency";
  if (tenant.tenant_class == policy::TenantClass::kBatch) json["class"] = "batch";
  json["sms"] = tenant.max_sms > 0 ? ordered_json{tenant.min_sms, tenant.max_sms} : ordered_json();
  for (const TenantKey& key : TenantKeys()) {
    const std::string name(key.key);
    if (const auto* number = std::get_if<double policy::Tenant::*>(&key.field)) {
      json[name] = tenant.*(*number);
    } else if (const auto* integer = std::get_if<int policy::Tenant::*>(&key.field)) {
      json[name] = tenant.*(*integer);
    } else if (const auto* flag = std::get_if<bool policy::Tenant::*>(&key.field)) {
      json[name] = tenant.*(*flag);
    } else if (const auto* duration =
                   std::get_if<policy::Nanoseconds policy::Tenant::*>(&key.field)) {
      json[name + "_ns"] = tenant.*(*duration);
    } else if (const auto* limit = std::get_if<uint64_t TenantQuota::*>(&key.field)) {
      json[name] = config.quota.*(*limit) != 0 ? ordered_json(config.quota.*(*limit)) : nullptr;
    } else if (const auto* names =
                   std::get_if<std::vector<std::string> TenantConfig::*>(&key.field)) {
      json[name] = config.*(*names);
    } else if (const auto* one = std::get_if<std::string TenantConfig::*>(&key.field)) {
      json[name] = (config.*(*one)).empty() ? ordered_json() : ordered_json(config.*(*one));
    }
  }
  return json;
}

}  // namespace

std::vector<ConfigProblem> MistakesOf(const ParsedConfig& parsed) {
  std::vector<ConfigProblem> mistakes = parsed.problems;
  if (!mistakes.empty()) return mistakes;
  for (std::string& line : Obstacles(parsed.config)) mistakes.push_back({0, 0, std::move(line)});
  return mistakes;
}

std::vector<std::string> WarningsOf(const Config& config) {
  std::vector<std::string> warnings = Cautions(config);
  const auto unknown = [&warnings](const TenantConfig& tenant, const char* what,
                                   const std::string& name) {
    warnings.push_back(
        absl::StrCat("[[tenant]] ", tenant.tenant.name, ": this host has no ", what, " ", name));
  };
  if (config.admin_group != Config().admin_group && !GroupId(config.admin_group).has_value())
    warnings.push_back(
        absl::StrCat("[daemon] admin_group: this host has no group ", config.admin_group));
  for (const TenantConfig& tenant : config.tenants) {
    for (const std::string& user : tenant.users) {
      if (!UserId(user).has_value()) unknown(tenant, "user", user);
    }
    for (const std::string& group : tenant.groups) {
      if (!GroupId(group).has_value()) unknown(tenant, "group", group);
    }
  }
  const auto missing = [&warnings](const char* key, const std::string& path) {
    struct stat status;
    if (path.empty() || path[0] != '/' || stat(path.c_str(), &status) == 0 || errno != ENOENT)
      return;
    warnings.push_back(
        absl::StrCat(key, ": this host has no file ", path, ", and no daemon starts without it"));
  };
  if (!config.metrics_listen.empty()) missing("[metrics] token_file", config.metrics_token_file);
  struct stat token;
  if (stat(config.metrics_token_file.c_str(), &token) == 0 && (token.st_mode & S_IROTH) != 0) {
    warnings.push_back(absl::StrCat("[metrics] token_file: all users can read ",
                                    config.metrics_token_file, ": chmod o-r"));
  }
  missing("[policy] name", config.policy);
  return warnings;
}

std::string ConfigJson(const Config& config) {
  ordered_json json;
  for (const ConfigSetting& setting : AllConfigSettings())
    json[std::string(setting.section)][std::string(setting.key)] = SettingJson(setting, config);
  json["policy"]["parameters"] = config.policy_parameters;
  json["tenant"] = ordered_json::array();
  for (const TenantConfig& tenant : config.tenants) json["tenant"].push_back(TenantJson(tenant));
  return JsonText(json);
}

int CheckConfig(const std::string& file, bool json) {
  const std::string path = FileOr(file);
  const absl::StatusOr<std::string> text = ReadConfigFile(path);
  std::vector<ConfigProblem> problems;
  std::vector<std::string> warnings;
  if (text.ok()) {
    const ParsedConfig parsed = ParseConfig(*text);
    problems = MistakesOf(parsed);
    if (problems.empty()) warnings = WarningsOf(parsed.config);
  } else {
    const bool none = file.empty() && absl::IsNotFound(text.status());
    problems.push_back({0, 0,
                        absl::StrCat(text.status().message(),
                                     none ? "; name the daemon's file, or begin with the output of "
                                            "detsharectl config example"
                                          : "")});
  }
  if (json) {
    ordered_json list = ordered_json::array();
    for (const ConfigProblem& problem : problems) {
      list.push_back({{"line", problem.line}, {"column", problem.column}, {"text", problem.text}});
    }
    std::fputs(
        JsonText({{"file", path}, {"problems", std::move(list)}, {"warnings", warnings}}).c_str(),
        stdout);
  } else if (!text.ok()) {
    std::fprintf(stderr, "detsharectl: %s\n", problems.front().text.c_str());
  } else if (problems.empty()) {
    for (const std::string& warning : warnings)
      std::fprintf(stderr, "%s: warning: %s\n", path.c_str(), warning.c_str());
    std::printf("%s: no mistakes\n", path.c_str());
  } else {
    std::fputs(ProblemText(path, problems).c_str(), stderr);
  }
  return problems.empty() ? 0 : kExitMistakes;
}

int ShowConfig(const std::string& file, bool json) {
  absl::StatusOr<Config> config = LoadConfig(FileOr(file));
  if (file.empty() && absl::IsNotFound(config.status())) {
    std::fprintf(stderr, "There is no %s, so the defaults hold:\n", kDefaultConfigFile);
    config = Config();
  }
  if (!config.ok()) {
    std::fprintf(stderr, "%s\n", std::string(config.status().message()).c_str());
    return kExitMistakes;
  }
  std::fputs((json ? ConfigJson(*config) : ConfigText(*config)).c_str(), stdout);
  return 0;
}

}  // namespace detshare::ctl
