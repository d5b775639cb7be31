#include "policy/config/config_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#define TOML_EXCEPTIONS 0
// No configuration nests deeper, and every level takes stack.
#define TOML_MAX_NESTED_VALUES 16
#include <toml++/impl/preprocessor.h>
// The parser asserts conditions that its next lines check, and lets the compiler assume them. The
// compiler then removes the checks, and a text such as "[=" breaks the parser. Without the
// assertions the checks are made.
#undef TOML_ASSERT
#define TOML_ASSERT(expr) static_assert(true)
#undef TOML_ASSERT_ASSUME
#define TOML_ASSERT_ASSUME(expr) static_assert(true)
#include <toml++/toml.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "policy/registry.h"
#include "policy/status_macros.h"
#include "policy/tenants.h"

namespace detshare {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxTenants = 4096;
constexpr size_t kMaxPrincipals = 1024;
constexpr int kMaxSms = 1 << 16;

std::string TypeName(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a text";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number with a fraction";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

// What the file has in place of an allowed value: a number itself, and of other values the type.
std::string Found(const toml::node& node) {
  if (const auto integer = node.value_exact<int64_t>()) return absl::StrCat(*integer);
  const auto number = node.value_exact<double>();
  if (!number.has_value()) return TypeName(node);
  const std::string text = NumberText(*number);
  // A fraction of 0 may be what is wrong.
  const bool whole = text.find_first_not_of("-0123456789") == text.npos;
  return whole ? text + ".0" : text;
}

template <typename Items, typename Text>
std::string List(const Items& items, const Text& text) {
  std::vector<std::string> names;
  for (const auto& item : items) names.emplace_back(text(item));
  return absl::StrJoin(names, ", ");
}

std::string Name(const toml::key& key) { return std::string(key.str()); }

class Reader {
 public:
  // The place where the file names the policy; 0: it names none.
  int policy_line = 0, policy_column = 0;

  ParsedConfig Read(absl::string_view text) {
    const toml::parse_result parsed = toml::parse(std::string_view(text.data(), text.size()));
    if (!parsed) {
      Problem(parsed.error().source(), std::string(parsed.error().description()));
      return std::move(result_);
    }
    for (const auto& [key, node] : parsed.table()) {
      if (Name(key) == "tenant") {
        ReadTenants(node);
      } else if (IsSection(Name(key))) {
        if (const toml::table* table = node.as_table()) {
          ReadSection(Name(key), *table);
        } else {
          Problem(node.source(), absl::StrCat(Name(key), " is a section: [", Name(key), "]"));
        }
      } else if (const std::string sections = SectionsWith(Name(key));
                 !node.is_table() && !node.is_array_of_tables() && !sections.empty()) {
        Problem(key.source(), absl::StrCat(Shown(Name(key)), " is a key of ", sections,
                                           ": write it below the line of its section"));
      } else {
        Problem(key.source(), absl::StrCat("there is no section ", Shown(Name(key)), "; there are ",
                                           Sections(), " and [[tenant]]"));
      }
    }
    CheckPolicyItself();
    // The parser's table is ordered by name; problems are reported by line.
    std::stable_sort(result_.problems.begin(), result_.problems.end(),
                     [](const ConfigProblem& a, const ConfigProblem& b) {
                       return std::pair(a.line, a.column) < std::pair(b.line, b.column);
                     });
    return std::move(result_);
  }

 private:
  using Place = std::pair<int, int>;  // line, column

  // What can be said of the policy whatever else is wrong.
  void CheckPolicyItself() {
    const Place place(policy_line, policy_column);
    for (const ConfigProblem& problem : result_.problems) {
      if (policy_line != 0 && Place(problem.line, problem.column) == place) return;
    }
    const Config& config = result_.config;
    const auto add = [&](const Place& where, const absl::Status& status) {
      if (status.ok()) return;
      result_.problems.push_back({where.first, where.second, std::string(status.message())});
    };
    // A policy in a shared object is code. Parsing a file must not execute it.
    if (policy::IsSharedObject(config.policy)) return add(place, policy::CheckPath(config.policy));
    const absl::StatusOr<absl::Span<const policy::Parameter>> known =
        policy::ParametersOf(config.policy);
    if (!known.ok()) return add(place, known.status());
    for (const auto& [name, text] : config.policy_parameters) {
      policy::Options one;
      one.parameters[name] = text;
      add(parameter_places_[name],
          policy::ParameterValues::Read(config.policy, *known, one).status());
    }
  }

  // Adds a problem. Control characters become '?', because `text` goes to a terminal and the
  // parser's own messages quote the file.
  void Problem(const toml::source_region& where, std::string text) {
    for (char& c : text) {
      if (!IsPlain(absl::string_view(&c, 1))) c = '?';
    }
    result_.problems.push_back({static_cast<int>(where.begin.line),
                                static_cast<int>(where.begin.column), std::move(text)});
  }
  // The beginning of a text of the file, quoted and made safe for a terminal.
  static std::string Shown(absl::string_view text) {
    return absl::StrCat("\"", text.substr(0, 64), text.size() > 64 ? "...\"" : "\"");
  }
  static bool IsSection(absl::string_view name) {
    const absl::Span<const ConfigSetting> settings = AllConfigSettings();
    return std::any_of(settings.begin(), settings.end(),
                       [&](const ConfigSetting& setting) { return setting.section == name; });
  }
  static std::string Sections() {
    std::vector<std::string> sections;
    for (const ConfigSetting& setting : AllConfigSettings()) {
      const std::string section = absl::StrCat("[", setting.section, "]");
      if (sections.empty() || sections.back() != section) sections.push_back(section);
    }
    return absl::StrJoin(sections, ", ");
  }

  // The sections that have the key: "[daemon]", "[policy] and [[tenant]]"; "" for none.
  static std::string SectionsWith(absl::string_view key) {
    std::vector<std::string> sections;
    for (const ConfigSetting& setting : AllConfigSettings()) {
      if (setting.key == key) sections.push_back(absl::StrCat("[", setting.section, "]"));
    }
    const absl::Span<const TenantKey> keys = TenantKeys();
    if (std::any_of(keys.begin(), keys.end(), [&](const TenantKey& one) { return one.key == key; }))
      sections.push_back("[[tenant]]");
    std::string text;
    for (size_t i = 0; i < sections.size(); ++i) {
      const bool last = i + 1 == sections.size();
      absl::StrAppend(&text, i == 0 ? "" : last ? " and " : ", ", sections[i]);
    }
    return text;
  }
  // Says that `section` ("[daemon]") does not have the key, and who has it, or else what it has.
  void NoSuchKey(absl::string_view section, const toml::key& key, absl::string_view known) {
    const std::string others = SectionsWith(Name(key));
    Problem(key.source(), absl::StrCat(section, " has no ", Shown(Name(key)),
                                       others.empty() ? absl::StrCat("; it has ", known)
                                                      : absl::StrCat(": it is a key of ", others)));
  }

  void ReadSection(absl::string_view section, const toml::table& table) {
    for (const auto& [key, node] : table) {
      if (section == "policy" && Name(key) == "parameters") {
        ReadParameters(node);
        continue;
      }
      const ConfigSetting* setting = FindConfigSetting(section, Name(key));
      if (setting == nullptr) {
        std::vector<std::string> known;
        for (const ConfigSetting& one : AllConfigSettings()) {
          if (one.section == section) known.emplace_back(std::string(one.key));
        }
        if (section == "policy")
          known.push_back("and the policy's parameters in [policy.parameters]");
        NoSuchKey(absl::StrCat("[", section, "]"), key, absl::StrJoin(known, ", "));
        continue;
      }
      ReadSetting(*setting, node);
      if (section == "policy" && setting->key == "name") {
        policy_line = static_cast<int>(node.source().begin.line);
        policy_column = static_cast<int>(node.source().begin.column);
      }
    }
  }

  void ReadSetting(const ConfigSetting& setting, const toml::node& node) {
    absl::Status status;
    const bool text = std::holds_alternative<std::string Config::*>(setting.field);
    if (const auto number = node.value_exact<int64_t>(); number.has_value() && !text) {
      status = SetNumber(setting, *number, &result_.config);
    } else if (const auto* string = node.as_string();
               string != nullptr && (text || setting.type == "SIZE")) {
      status = SetFromText(setting, string->get(), &result_.config);
      if (status.ok() && (setting.type == "PATH" || setting.type == "DIR") &&
          string->get()[0] != '/')
        status = absl::InvalidArgumentError(
            absl::StrCat(setting.key, " is ", Allowed(setting), ", not ", Shown(string->get())));
    } else {
      status = absl::InvalidArgumentError(
          absl::StrCat(setting.key, " is ", Allowed(setting), ", not ", Found(node)));
    }
    if (!status.ok()) Problem(node.source(), std::string(status.message()));
  }

  void ReadParameters(const toml::node& node) {
    const toml::table* table = node.as_table();
    if (table == nullptr)
      return Problem(node.source(), "parameters is a section: [policy.parameters]");
    for (const auto& [key, value] : *table) {
      if (!IsPlain(Name(key)))
        Problem(key.source(), "the name of a parameter must not contain control characters");
      std::string text;
      if (const auto* string = value.as_string(); string != nullptr && IsPlain(string->get())) {
        text = string->get();
      } else if (const auto number = value.value_exact<int64_t>()) {
        text = absl::StrCat(*number);
      } else if (const auto fraction = value.value_exact<double>();
                 fraction.has_value() && std::isfinite(*fraction)) {
        text = NumberText(*fraction);
      } else if (const auto flag = value.value_exact<bool>()) {
        text = *flag ? "true" : "false";
      } else {
        Problem(value.source(), absl::StrCat(Shown(Name(key)),
                                             " is a text, a number, true or "
                                             "false, not ",
                                             Found(value)));
        continue;
      }
      parameter_places_[Name(key)] = Place(key.source().begin.line, key.source().begin.column);
      result_.config.policy_parameters[Name(key)] = std::move(text);
    }
  }

  void ReadTenants(const toml::node& node) {
    const toml::array* array = node.as_array();
    if (array == nullptr) return Problem(node.source(), "each tenant is a section [[tenant]]");
    if (array->size() > kMaxTenants)
      return Problem(node.source(), absl::StrCat("there are at most ", kMaxTenants, " tenants"));
    std::set<std::string> names;
    for (const toml::node& element : *array) {
      const toml::table* table = element.as_table();
      if (table == nullptr) {
        Problem(element.source(), "each tenant is a section [[tenant]]");
        continue;
      }
      TenantConfig& tenant = result_.config.tenants.emplace_back();
      if (!table->contains("name")) Problem(table->source(), "this tenant has no name");
      for (const auto& [key, value] : *table) ReadTenantKey(key, value, &tenant);
      if (!tenant.tenant.name.empty() && !names.insert(tenant.tenant.name).second)
        Problem(table->source(), absl::StrCat("tenant ", tenant.tenant.name, " has two sections"));
    }
  }

  void ReadTenantKey(const toml::key& key, const toml::node& node, TenantConfig* tenant) {
    const absl::Span<const TenantKey> keys = TenantKeys();
    const auto found = std::find_if(keys.begin(), keys.end(),
                                    [&](const TenantKey& one) { return one.key == Name(key); });
    if (found == keys.end()) {
      return NoSuchKey("[[tenant]]", key,
                       List(keys, [](const TenantKey& one) { return std::string(one.key); }));
    }
    const auto* string = node.as_string();
    const std::string text = string != nullptr ? string->get() : "";
    std::string expected, instead = string != nullptr ? Shown(text) : Found(node);
    if (std::holds_alternative<TenantKey::Name>(found->field)) {
      if (!IsTenantName(text)) expected = "1 to 64 letters, digits and -_.@, in quotes";
      tenant->tenant.name = text;
    } else if (std::holds_alternative<TenantKey::Class>(found->field)) {
      if (text == "latency") {
        tenant->tenant.tenant_class = policy::TenantClass::kLatency;
      } else if (text == "batch") {
        tenant->tenant.tenant_class = policy::TenantClass::kBatch;
      } else {
        expected = "\"latency\" or \"batch\"";
      }
    } else if (std::holds_alternative<TenantKey::SmBounds>(found->field)) {
      if (!ReadSmBounds(text, &tenant->tenant))
        expected = "two numbers of SMs in quotes, as \"32..132\"";
    } else if (const auto* number = std::get_if<double policy::Tenant::*>(&found->field)) {
      const std::optional<double> value = node.is_number() ? node.value<double>() : std::nullopt;
      if (!value.has_value() || !(*value > 0) || *value > policy::kMaxWeight) {
        expected = "a number above 0, up to 1000000";
      } else {
        tenant->tenant.*(*number) = *value;
      }
    } else if (const auto* integer = std::get_if<int policy::Tenant::*>(&found->field)) {
      const std::optional<int64_t> value = node.value_exact<int64_t>();
      if (!value.has_value() || *value < 0 || *value > 100) {
        expected = "an integer of 0 to 100";
      } else {
        tenant->tenant.*(*integer) = static_cast<int>(*value);
      }
    } else if (const auto* duration =
                   std::get_if<policy::Nanoseconds policy::Tenant::*>(&found->field)) {
      if (!ParseDuration(text, &(tenant->tenant.*(*duration))) || tenant->tenant.*(*duration) <= 0)
        expected = "a duration with its unit in quotes, as \"5ms\" (ns, us, ms, s)";
    } else if (const auto* flag = std::get_if<bool policy::Tenant::*>(&found->field)) {
      const std::optional<bool> value = node.value_exact<bool>();
      if (!value.has_value()) expected = "true or false";
      tenant->tenant.*(*flag) = value.value_or(false);
    } else if (const auto* limit = std::get_if<uint64_t TenantQuota::*>(&found->field)) {
      const bool size = found->type == "SIZE";
      int64_t value = node.value_exact<int64_t>().value_or(-1);
      const bool known = node.is_integer() || (size && ParseSize(text, &value));
      if (!known || value < 1 || value > (size ? int64_t{1} << 52 : 1'000'000)) {
        expected =
            size ? "a size, as \"24GiB\" or a number of bytes" : "an integer of 1 to 1000000";
      } else {
        tenant->quota.*(*limit) = static_cast<uint64_t>(value);
      }
    } else if (const auto* name = std::get_if<std::string TenantConfig::*>(&found->field)) {
      if (!IsTenantName(text)) expected = "1 to 64 letters, digits and -_.@, in quotes";
      tenant->*(*name) = text;
    } else {
      const auto names = std::get<std::vector<std::string> TenantConfig::*>(found->field);
      if (!ReadNames(node, &(tenant->*names)))
        expected = "an array of names or ids, as [\"alice\", 1001]";
      if (node.is_array())
        instead = absl::StrCat("an array of other values or of more than ", kMaxPrincipals);
    }
    if (!expected.empty()) {
      Problem(node.source(), absl::StrCat(Name(key), " is ", expected, ", not ", instead));
    }
  }

  static bool ReadSmBounds(absl::string_view text, policy::Tenant* tenant) {
    const std::vector<absl::string_view> bounds = absl::StrSplit(text, "..");
    return bounds.size() == 2 && absl::SimpleAtoi(bounds[0], &tenant->min_sms) &&
           absl::SimpleAtoi(bounds[1], &tenant->max_sms) && tenant->min_sms >= 0 &&
           tenant->max_sms >= std::max(tenant->min_sms, 1) && tenant->max_sms <= kMaxSms;
  }

  static bool ReadNames(const toml::node& node, std::vector<std::string>* names) {
    const toml::array* array = node.as_array();
    if (array == nullptr || array->size() > kMaxPrincipals) return false;
    for (const toml::node& element : *array) {
      if (const auto* name = element.as_string();
          name != nullptr && !name->get().empty() && IsPlain(name->get())) {
        names->push_back(name->get());
      } else if (const auto id = element.value_exact<int64_t>();
                 id.has_value() && *id >= 0 && *id < std::numeric_limits<uint32_t>::max()) {
        names->push_back(absl::StrCat(*id));
      } else {
        return false;
      }
    }
    return true;
  }

  ParsedConfig result_;
  std::map<std::string, Place> parameter_places_;
};

absl::Status ErrnoStatus(const std::string& path, int error) {
  const std::string text = absl::StrCat(path, ": ", std::generic_category().message(error));
  if (error == ENOENT) return absl::NotFoundError(text);
  return absl::PermissionDeniedError(text);
}

}  // namespace

absl::Status CheckPolicy(const Config& config) {
  policy::Options options;
  options.parameters = config.policy_parameters;
  const absl::StatusOr<std::unique_ptr<policy::Policy>> policy =
      policy::CreatePolicy(config.policy, options);
  if (!policy.ok()) return policy.status();
  std::vector<policy::Tenant> tenants;
  for (const TenantConfig& tenant : config.tenants) tenants.push_back(tenant.tenant);
  return (*policy)->Check(tenants);
}

ParsedConfig ParseConfig(absl::string_view text) {
  Reader reader;
  ParsedConfig parsed = reader.Read(text);
  if (parsed.problems.empty() && !policy::IsSharedObject(parsed.config.policy)) {
    if (const absl::Status status = CheckPolicy(parsed.config); !status.ok()) {
      parsed.problems.push_back(
          {reader.policy_line, reader.policy_column, std::string(status.message())});
    }
  }
  return parsed;
}

std::string ProblemText(absl::string_view file, const std::vector<ConfigProblem>& problems) {
  std::string text;
  for (const ConfigProblem& problem : problems) {
    absl::StrAppend(&text, file, ":");
    if (problem.line > 0) absl::StrAppend(&text, problem.line, ":", problem.column, ":");
    absl::StrAppend(&text, " ", problem.text, "\n");
  }
  return text;
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  // O_NONBLOCK: open() does not wait for a FIFO, which is refused below.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus(path, errno);
  struct stat status;
  absl::Status refused;
  if (fstat(fd, &status) != 0) {
    refused = ErrnoStatus(path, errno);
  } else if (!S_ISREG(status.st_mode)) {
    refused = absl::InvalidArgumentError(path + ": is not a regular file");
  } else if (status.st_uid != 0 && status.st_uid != geteuid()) {
    refused = absl::PermissionDeniedError(
        path + ": belongs to another user, which could change it: run chown root");
  } else if ((status.st_mode & S_IWOTH) != 0) {
    refused = absl::PermissionDeniedError(path + ": all users may write to it: run chmod o-w");
  } else if (status.st_uid == 0 && (status.st_mode & S_IWGRP) != 0 && status.st_gid != 0) {
    refused = absl::PermissionDeniedError(
        path + ": a group other than root's may write to it: run chmod g-w");
  }
  std::string text;
  char buffer[16384];
  for (ssize_t bytes = 1; refused.ok() && bytes > 0;) {
    bytes = read(fd, buffer, sizeof(buffer));
    if (bytes < 0) refused = ErrnoStatus(path, errno);
    if (bytes > 0) text.append(buffer, static_cast<size_t>(bytes));
    if (text.size() > kMaxFileBytes)
      refused = absl::InvalidArgumentError(path + ": is longer than 1 MiB");
  }
  close(fd);
  if (!refused.ok()) return refused;
  return text;
}

absl::StatusOr<Config> LoadConfig(const std::string& path, std::string* text) {
  DETSHARE_ASSIGN_OR_RETURN(std::string read, ReadConfigFile(path));
  ParsedConfig parsed = ParseConfig(read);
  if (!parsed.problems.empty()) {
    std::string problems = ProblemText(path, parsed.problems);
    problems.pop_back();
    return absl::InvalidArgumentError(problems);
  }
  if (text != nullptr) *text = std::move(read);
  return std::move(parsed.config);
}

}  // namespace detshare
