#include "policy/config/config.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "policy/config/listen_address.h"

namespace detshare {
namespace {

constexpr int64_t kMaxCount = 1 << 30;

constexpr ConfigSetting kSettings[] = {
    {"daemon", "socket", "socket", &Config::socket, "PATH", "", 0, 0, kDefaultSocket, false,
     "The socket to which programs connect"},
    {"daemon", "socket_mode", "socket-mode", &Config::socket_mode, "OCTAL", "", 0, 0, "", false,
     "Users that may connect, as a mode of chmod; has no effect if systemd makes the socket"},
    {"daemon", "runtime_dir", "runtime-dir", &Config::runtime_dir, "DIR", "", 0, 0,
     "the socket's directory", false, "The directory for the shared files of sessions, on a tmpfs"},
    {"daemon", "backend", "backend", &Config::backend, "", "auto|cuda|soft", 0, 0, "", false,
     "The GPUs: cuda for real GPUs, soft for software GPUs, auto for real GPUs if there are any"},
    {"daemon", "log_level", "log-level", &Config::log_level, "", "error|warning|info|debug", 0, 0,
     "", true, "The messages that the daemon logs on stderr"},
    {"daemon", "unlisted_tenants", "", &Config::unlisted_tenants, "", "allow|refuse", 0, 0, "",
     true, "Whether a program may be a tenant that has no [[tenant]] section"},
    {"daemon", "isolation", "isolation", &Config::isolation, "", "shared|strict", 0, 0, "", false,
     "Whether programs of different users may share a context of a GPU. With strict, each user's "
     "programs have a daemon process of their own (docs/security.md)"},
    {"daemon", "profile_dir", "profile-dir", &Config::profile_dir, "DIR", "", 0, 0,
     "profiles in systemd's state directory; without one, the daemon keeps nothing", false,
     "The directory where the daemon keeps what it has learned about the durations of operations"},
    {"daemon", "admin_group", "", &Config::admin_group, "GROUP", "", 0, 0, "", true,
     "The group whose members, like root, may change the policy, tenants and the configuration, "
     "and end sessions of other users"},
    {"daemon", "session_slots", "session-slots", &Config::session_slots, "N", "", 1, 1024,
     "64; 256 with software GPUs", false,
     "Largest number of sessions at a time; with more slots, each session has fewer addresses"},
    {"daemon", "spin_us", "spin-us", &Config::spin_us, "US", "", 0, 1'000'000,
     "50 on more than 4 cores, else 0", false,
     "Time for which a session's worker looks for work before it sleeps"},
    {"daemon", "client_spin_us", "client-spin-us", &Config::client_spin_us, "US", "", 0, 1'000'000,
     "5000 on more than 4 cores, 50 with software GPUs, else 0", false,
     "Time for which a program polls for the GPU before it sleeps, as a native program does"},
    {"daemon", "staging_mib", "staging-mib", &Config::staging_mib, "MIB", "", 1, 1024,
     "16; 64 with cuda", false, "Staging memory of a session, for copies of pageable memory"},
    {"daemon", "image_store_mib", "image-store-mib", &Config::image_store_mib, "MIB", "", 0, 65536,
     "", false,
     "Code that the daemon keeps, so that later processes of the same user need not send it"},
    {"daemon", "swap_memory", "swap-memory", &Config::swap_memory, "SIZE", "", 0, int64_t{1} << 46,
     "half of the host's; 0 with strict isolation", false,
     "Host memory for device memory that leaves a full card; 0: memory does not leave the card"},
    {"daemon", "cuda_driver", "cuda-driver", &Config::cuda_driver, "PATH", "", 0, 0, "looked for",
     false, "The real libcuda.so.1"},
    {"daemon", "cuda_sm_group", "cuda-sm-group", &Config::cuda_sm_group, "", "8|2", 0, 0, "", false,
     "SMs in a group; partitions consist of whole groups"},
    {"daemon", "preemption", "preemption", &Config::preemption, "", "auto|off", 0, 0, "", false,
     "Whether urgent work stops the running work of other programs: auto uses the GPU's time-slice "
     "groups if the GPU honours them, off never does. With strict isolation it is always off, "
     "because the groups of several processes would stop each other"},
    {"daemon", "max_sessions", "max-sessions", &Config::max_sessions, "N", "", 0, kMaxCount,
     "as many as there are addresses for", true,
     "Largest number of programs at a time; the daemon refuses more; 0: no such limit"},
    {"metrics", "listen", "metrics", &Config::metrics_listen, "ADDRESS", "", 0, 0, "off", false,
     "The address for HTTP, where the daemon serves /metrics and the dashboard"},
    {"metrics", "socket_mode", "", &Config::metrics_socket_mode, "OCTAL", "", 0, 0, "", false,
     "Users that may connect, as a mode of chmod, if the address is a unix socket"},
    {"metrics", "dashboard", "dashboard", &Config::dashboard, "", "on|off", 0, 0, "", false,
     "Whether the daemon serves the dashboard, which shows programs and their process IDs"},
    {"software_gpu", "devices", "soft-devices", &Config::soft_devices, "N", "", 1, 8, "", false,
     "Number of software GPUs"},
    {"software_gpu", "sms", "soft-sms", &Config::soft_sms, "N", "", 1, 4096, "the usual device's",
     false, "SMs of a software GPU"},
    {"software_gpu", "memory", "soft-memory", &Config::soft_memory, "SIZE", "", 1 << 20,
     int64_t{1} << 42, "the usual device's", false, "Memory of a software GPU"},
    {"software_gpu", "compute_capability", "soft-cc", &Config::soft_cc, "X.Y", "", 0, 0,
     "the usual device's", false, "Compute capability of a software GPU"},
    {"software_gpu", "threads", "soft-threads", &Config::soft_threads, "N", "", 1, 4096,
     "one for each core", false, "Threads that run the kernels of a software GPU"},
    {"policy", "name", "policy", &Config::policy, "NAME", "", 0, 0, "", true,
     "The policy that decides which program runs on which SMs, and when"},
    {"policy", "placement", "placement", &Config::placement, "",
     "workload-aware|best-fit|round-robin", 0, 0, "", true,
     "The placement that chooses devices for programs that get only some of them (devices of a "
     "tenant, detshare run --devices)"},
    {"tenant_defaults", "memory", "", &Config::default_memory, "SIZE", "", 0, int64_t{1} << 52,
     "no limit", true, "Device memory, on each device; 0: no limit"},
    {"tenant_defaults", "pinned_memory", "", &Config::default_pinned_memory, "SIZE", "", 0,
     int64_t{1} << 52, "no limit", true, "Pinned, registered and managed host memory; 0: no limit"},
    {"tenant_defaults", "sessions", "", &Config::default_sessions, "N", "", 0, 1'000'000,
     "no limit", true, "Programs at a time; 0: no limit"},
    {"tenant_defaults", "devices", "", &Config::default_devices, "N", "", 0, 1'000'000, "all", true,
     "Largest number of devices of a program; 0: all devices of the host"},
    {"limits", "contexts", "", &Config::contexts, "N", "", 1, kMaxCount, "", true, "Contexts"},
    {"limits", "streams", "", &Config::streams, "N", "", 1, kMaxCount, "", true, "Streams"},
    {"limits", "events", "", &Config::events, "N", "", 1, kMaxCount, "", true, "Events"},
    {"limits", "libraries", "", &Config::libraries, "N", "", 1, kMaxCount, "", true,
     "Loaded modules and libraries"},
    {"limits", "kernels", "", &Config::kernels, "N", "", 1, kMaxCount, "", true, "Kernels"},
    {"limits", "arrays", "", &Config::arrays, "N", "", 1, kMaxCount, "", true, "CUDA arrays"},
    {"limits", "textures", "", &Config::textures, "N", "", 1, kMaxCount, "", true,
     "Texture and surface objects"},
    {"limits", "graphs", "", &Config::graphs, "N", "", 1, kMaxCount, "", true, "Executable graphs"},
    {"limits", "code_mib", "", &Config::code_mib, "MIB", "", 1, 1 << 20, "", true,
     "Loaded code, in all"},
    {"limits", "graph_mib", "", &Config::graph_mib, "MIB", "", 1, 1 << 20, "", true,
     "Descriptions of executable graphs, in all"},
};

const TenantKey kTenantKeys[] = {
    {"name", "NAME", TenantKey::Name{},
     "The name that programs use (detshare run --tenant, DETSHARE_TENANT): 1 to 64 letters, digits "
     "and -_.@; required"},
    {"class", "CLASS", TenantKey::Class{},
     "\"latency\": a user waits for each result; \"batch\": only the throughput counts; without "
     "it, the policy may learn the class"},
    {"weight", "NUMBER", &policy::Tenant::weight,
     "Its share relative to other tenants, for policies with fair shares [1]"},
    {"sm_percent", "N", &policy::Tenant::sm_percent,
     "A fixed share of the SMs, 0 to 100 percent, for policies with fixed shares"},
    {"exclusive", "true or false", &policy::Tenant::exclusive,
     "Its kernels never run beside those of other tenants, only in turns with them, under every "
     "policy [false]"},
    {"sms", "\"N..M\"", TenantKey::SmBounds{}, "Bounds of its partitions, in SMs"},
    {"memory", "SIZE", &TenantQuota::memory,
     "Device memory of all of its programs together, on each device. Allocations beyond it return "
     "CUDA_ERROR_OUT_OF_MEMORY. Programs see it as the memory of the device"},
    {"pinned_memory", "SIZE", &TenantQuota::pinned_memory,
     "Pinned, registered and managed host memory of all of its programs together"},
    {"sessions", "N", &TenantQuota::sessions,
     "Largest number of programs at a time; the daemon refuses more"},
    {"devices", "N", &TenantQuota::devices,
     "Largest number of devices of a program. The placement chooses them when the program begins, "
     "and the program numbers them from 0. Without it: all devices of the host"},
    {"slo_latency", "DURATION", &policy::Tenant::slo_latency,
     "Objective for the time of a burst of work, from its first operation to its end"},
    {"slo_ttft", "DURATION", &policy::Tenant::slo_ttft,
     "Objective for the time to the first token"},
    {"slo_tpot", "DURATION", &policy::Tenant::slo_tpot, "Objective for the time per output token"},
    {"users", "[NAME, ...]", &TenantConfig::users,
     "Users that may be this tenant. The first tenant that names a user is the default of that "
     "user. Without users and groups, all users may"},
    {"groups", "[NAME, ...]", &TenantConfig::groups, "Groups whose members may be this tenant"},
};

struct Unit {
  absl::string_view name;
  int64_t factor;
};
// From the shortest to the longest.
constexpr Unit kDurations[] = {{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}};

// Divides "1.5 GiB" into a number, which may have a fraction, and a unit, which may be empty.
bool ParseNumber(absl::string_view text, double* number, absl::string_view* unit) {
  size_t end = 0;
  while (end < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[end])) || text[end] == '.'))
    ++end;
  *unit = absl::StripAsciiWhitespace(text.substr(end));
  return end > 0 && end <= 24 && absl::SimpleAtod(text.substr(0, end), number);
}

std::vector<absl::string_view> Choices(const ConfigSetting& setting) {
  return absl::StrSplit(setting.choices, '|');
}

absl::Status NotAllowed(const ConfigSetting& setting, absl::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat(setting.key, " is ", Allowed(setting), ", not ", text.substr(0, 100)));
}

std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

bool SameTenants(const Config& a, const Config& b) {
  return std::equal(a.tenants.begin(), a.tenants.end(), b.tenants.begin(), b.tenants.end(),
                    [](const TenantConfig& left, const TenantConfig& right) {
                      const policy::Tenant &x = left.tenant, &y = right.tenant;
                      return x.name == y.name && x.tenant_class == y.tenant_class &&
                             x.weight == y.weight && x.sm_percent == y.sm_percent &&
                             x.min_sms == y.min_sms && x.max_sms == y.max_sms &&
                             x.slo_latency == y.slo_latency && x.slo_ttft == y.slo_ttft &&
                             x.slo_tpot == y.slo_tpot && x.exclusive == y.exclusive &&
                             left.quota == right.quota;
                    });
}

bool SameAccess(const Config& a, const Config& b) {
  return std::equal(a.tenants.begin(), a.tenants.end(), b.tenants.begin(), b.tenants.end(),
                    [](const TenantConfig& x, const TenantConfig& y) {
                      return x.tenant.name == y.tenant.name && x.users == y.users &&
                             x.groups == y.groups;
                    }) &&
         a.unlisted_tenants == b.unlisted_tenants;
}

}  // namespace

absl::Span<const ConfigSetting> AllConfigSettings() { return kSettings; }
absl::Span<const TenantKey> TenantKeys() { return kTenantKeys; }

const ConfigSetting* FindConfigSetting(absl::string_view section, absl::string_view key) {
  for (const ConfigSetting& setting : kSettings) {
    if (setting.section == section && setting.key == key) return &setting;
  }
  return nullptr;
}

std::string Allowed(const ConfigSetting& setting) {
  if (!setting.choices.empty()) {
    const std::vector<absl::string_view> choices = Choices(setting);
    std::string text;
    for (size_t i = 0; i < choices.size(); ++i)
      absl::StrAppend(&text, i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ", choices[i]);
    return text;
  }
  if (std::holds_alternative<std::string Config::*>(setting.field)) {
    if (setting.type == "OCTAL") return "an octal number up to 0777 in quotes, as \"0660\"";
    if (setting.type == "ADDRESS") return std::string(kListenAddressForms);
    if (setting.type == "PATH" || setting.type == "DIR") return "an absolute path";
    if (setting.type == "NAME") return "the name of a policy, or the path of a shared object";
    return "a text";
  }
  return absl::StrCat(setting.type == "SIZE" ? "a size (\"4GiB\", or bytes) of " : "", setting.min,
                      " to ", setting.max);
}

absl::Status SetNumber(const ConfigSetting& setting, int64_t value, Config* config) {
  const bool chosen = setting.choices.empty() ? value >= setting.min && value <= setting.max : [&] {
    const auto choices = Choices(setting);
    return std::find(choices.begin(), choices.end(), absl::StrCat(value)) != choices.end();
  }();
  if (!chosen) return NotAllowed(setting, absl::StrCat(value));
  config->*std::get<int64_t Config::*>(setting.field) = value;
  return absl::OkStatus();
}

absl::Status SetFromText(const ConfigSetting& setting, absl::string_view text, Config* config) {
  if (std::holds_alternative<int64_t Config::*>(setting.field)) {
    int64_t value = 0;
    const bool number =
        setting.type == "SIZE" ? ParseSize(text, &value) : absl::SimpleAtoi(text, &value);
    if (!number) return NotAllowed(setting, Quoted(text));
    return SetNumber(setting, value, config);
  }
  bool allowed = IsPlain(text);
  if (!setting.choices.empty()) {
    const std::vector<absl::string_view> choices = Choices(setting);
    allowed = std::find(choices.begin(), choices.end(), text) != choices.end();
  } else if (setting.type == "OCTAL") {
    allowed = !text.empty() && text.size() <= 4 &&
              text.find_first_not_of("01234567") == text.npos &&
              (text.size() < 4 || text[0] == '0');
  } else if (setting.type == "ADDRESS") {
    allowed = allowed && ParseListenAddress(text).ok();
  } else if (text.empty()) {
    allowed = false;
  }
  if (!allowed) return NotAllowed(setting, Quoted(text));
  config->*std::get<std::string Config::*>(setting.field) = std::string(text);
  return absl::OkStatus();
}

std::string ValueText(const ConfigSetting& setting, const Config& config) {
  if (const auto* text = std::get_if<std::string Config::*>(&setting.field))
    return Quoted(config.*(*text));
  return absl::StrCat(config.*std::get<int64_t Config::*>(setting.field));
}

bool IsDefault(const ConfigSetting& setting, const Config& config) {
  static const Config* const defaults = new Config;
  return ValueText(setting, config) == ValueText(setting, *defaults);
}

bool ParseDuration(absl::string_view text, policy::Nanoseconds* duration) {
  double number = 0;
  absl::string_view unit;
  if (!ParseNumber(text, &number, &unit)) return false;
  for (const Unit& one : kDurations) {
    if (one.name != unit) continue;
    const double nanoseconds = number * static_cast<double>(one.factor);
    if (nanoseconds >= 9e18) return false;
    *duration = static_cast<policy::Nanoseconds>(nanoseconds + 0.5);
    return true;
  }
  return false;
}

std::string DurationText(policy::Nanoseconds duration) {
  const Unit* best = &kDurations[0];
  for (const Unit& one : kDurations) {
    if (duration != 0 && duration % one.factor == 0) best = &one;
  }
  return absl::StrCat(duration / best->factor, best->name);
}

std::string NumberText(double number) {
  char text[32];
  return std::string(text, std::to_chars(std::begin(text), std::end(text), number).ptr);
}

bool ParseSize(absl::string_view text, int64_t* bytes) {
  double number = 0;
  absl::string_view unit;
  if (!ParseNumber(text, &number, &unit)) return false;
  std::string name = absl::AsciiStrToLower(unit);
  if (!name.empty() && name.back() == 'b') name.pop_back();
  if (name.size() == 2 && name.back() == 'i') name.pop_back();
  constexpr absl::string_view kPowers = "kmgt";
  const size_t power = name.empty() ? 0 : kPowers.find(name) + 1;
  if (name.size() > 1 || (power == 0 && !name.empty())) return false;
  const double value = number * static_cast<double>(int64_t{1} << (10 * power));
  if (value >= 9e18) return false;
  *bytes = static_cast<int64_t>(value);
  return true;
}

bool IsPlain(absl::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

bool IsTenantName(absl::string_view name) {
  constexpr size_t kMaxTenant = 64;
  return !name.empty() && name.size() <= kMaxTenant &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == '@';
         });
}

ConfigChange Compare(const Config& before, const Config& after) {
  ConfigChange change;
  for (const ConfigSetting& setting : kSettings) {
    if (ValueText(setting, before) == ValueText(setting, after)) continue;
    (setting.live ? change.live : change.restart)
        .push_back(absl::StrCat("[", setting.section, "] ", setting.key));
  }
  if (before.policy_parameters != after.policy_parameters)
    change.live.push_back("[policy.parameters]");
  if (!SameTenants(before, after)) change.live.push_back("[[tenant]]");
  change.access = !SameAccess(before, after);
  if (change.access) change.live.push_back("who may be which tenant");
  return change;
}

}  // namespace detshare
