#include "policy/config/config.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <limits>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "policy/config/listen_address.h"
#include "policy/config/user_range.h"
#include "policy/session_caps.h"

namespace detshare {
namespace {

constexpr int64_t kMaxCount = 1 << 30;
constexpr absl::string_view kSocketFlag = "socket";

constexpr ConfigSetting kSettings[] = {
    {.section = "daemon",
     .key = "socket",
     .flag = kSocketFlag,
     .field = &Config::socket,
     .type = "PATH",
     .computed = kDefaultSocket,
     .help = "The socket to which programs connect"},
    {.section = "daemon",
     .key = "socket_mode",
     .flag = "socket-mode",
     .field = &Config::socket_mode,
     .type = "OCTAL",
     .help =
         "Users that may connect, as a mode of chmod: 600 is the daemon's own user, 660 also the "
         "socket's group, 666 all users; has no effect if systemd makes the socket"},
    {.section = "daemon",
     .key = "runtime_dir",
     .flag = "runtime-dir",
     .field = &Config::runtime_dir,
     .type = "DIR",
     .computed = "the socket's directory",
     .help = "The directory for the shared files of sessions, on a tmpfs. The daemon accepts the "
             "socket's directory only: to have the files elsewhere, move the socket"},
    {.section = "daemon",
     .key = "backend",
     .flag = "backend",
     .field = &Config::backend,
     .choices = "auto|cuda|soft",
     .help = "The GPUs: cuda for real GPUs, soft for software GPUs, auto for real GPUs if the "
             "host has any"},
    {.section = "daemon",
     .key = "log_level",
     .flag = "log-level",
     .field = &Config::log_level,
     .choices = "error|warning|info|debug",
     .live = true,
     .help = "The messages that the daemon logs on stderr"},
    {.section = "daemon",
     .key = "unlisted_tenants",
     .field = &Config::unlisted_tenants,
     .choices = "allow|refuse",
     .live = true,
     .help = "Whether a program may be a tenant that has no [[tenant]] section"},
    {.section = "daemon",
     .key = "isolation",
     .flag = "isolation",
     .field = &Config::isolation,
     .choices = "none|user|tenant|group",
     .packaged = "tenant",
     .help =
         "Which programs share an engine, a process with contexts on the GPUs. A fault of one "
         "program ends the others of its engine. none: all programs of the host; user: those "
         "of one user; tenant: those of one tenant; group: those of all tenants that name the same "
         "group, so that they run side by side in space (docs/security.md)"},
    {.section = "daemon",
     .key = "engine_users",
     .flag = "engine-users",
     .field = &Config::engine_users,
     .type = "UIDS",
     .computed = "none: engines run as the daemon's user",
     .help = "With isolation other than none: user IDs that nothing else on the host uses. Each "
             "engine runs as one of them, without capabilities (docs/security.md)"},
    {.section = "daemon",
     .key = "spare_engines",
     .flag = "spare-engines",
     .field = &Config::spare_engines,
     .type = "N",
     .min = 0,
     .max = 8,
     .computed = "1 on GPUs; 0 with software GPUs",
     .live = true,
     .help =
         "With isolation other than none: engines that have opened the GPUs already, so that the "
         "first programs of so many tenants need not wait for theirs. Each takes half a GiB of "
         "each GPU's memory until programs need that memory. With swap_memory = 0 it keeps the "
         "memory"},
    {.section = "daemon",
     .key = "profile_dir",
     .flag = "profile-dir",
     .field = &Config::profile_dir,
     .type = "DIR",
     .computed = "profiles in systemd's state directory; without one, the daemon keeps nothing",
     .help = "The directory where the daemon keeps what it has learned about the durations of "
             "operations"},
    {.section = "daemon",
     .key = "admin_group",
     .field = &Config::admin_group,
     .type = "GROUP",
     .live = true,
     .help = "The group whose members, like root, may change the policy, tenants and the "
             "configuration, and end sessions of other users"},
    {.section = "daemon",
     .key = "session_slots",
     .flag = "session-slots",
     .field = &Config::session_slots,
     .type = "N",
     .min = 1,
     .max = 1024,
     .computed = "64; 256 with software GPUs",
     .help =
         "Largest number of sessions at a time; with more slots, each session has fewer addresses"},
    {.section = "daemon",
     .key = "spin_us",
     .flag = "spin-us",
     .field = &Config::spin_us,
     .type = "US",
     .min = 0,
     .max = 1'000'000,
     .computed = "50 on more than 4 cores, else 0",
     .help = "Time for which a session's worker looks for work before it sleeps"},
    {.section = "daemon",
     .key = "client_spin_us",
     .flag = "client-spin-us",
     .field = &Config::client_spin_us,
     .type = "US",
     .min = 0,
     .max = 1'000'000,
     .computed = "5000 on more than 4 cores, 50 with software GPUs, else 0",
     .help =
         "Time for which a program polls for the GPU before it sleeps, as a native program does"},
    {.section = "daemon",
     .key = "staging_mib",
     .flag = "staging-mib",
     .field = &Config::staging_mib,
     .type = "MIB",
     .min = 1,
     .max = 1024,
     .computed = "16; 64 with cuda",
     .help = "Staging memory of a session, for copies of pageable memory"},
    {.section = "daemon",
     .key = "image_store_mib",
     .flag = "image-store-mib",
     .field = &Config::image_store_mib,
     .type = "MIB",
     .min = 0,
     .max = 65536,
     .help =
         "Code that the daemon keeps, so that later processes of the same user need not send it"},
    {.section = "daemon",
     .key = "swap_memory",
     .flag = "swap-memory",
     .field = &Config::swap_memory,
     .type = "SIZE",
     .min = 0,
     .max = int64_t{1} << 46,
     .computed = "half of the host's",
     .help = "Host memory for device memory that leaves a full card; 0: memory does not leave the "
             "card"},
    {.section = "daemon",
     .key = "cuda_driver",
     .flag = "cuda-driver",
     .field = &Config::cuda_driver,
     .type = "PATH",
     .computed = "looked for",
     .help = "The real libcuda.so.1"},
    {.section = "daemon",
     .key = "cuda_sm_group",
     .flag = "cuda-sm-group",
     .field = &Config::cuda_sm_group,
     .choices = "8|2",
     .help = "SMs in a group; partitions consist of whole groups"},
    {.section = "daemon",
     .key = "preemption",
     .flag = "preemption",
     .field = &Config::preemption,
     .choices = "auto|off",
     .help = "Whether urgent work stops the running work of other programs: auto uses the GPU's "
             "time-slice groups if the GPU honours them, off never does"},
    {.section = "daemon",
     .key = "max_sessions",
     .flag = "max-sessions",
     .field = &Config::max_sessions,
     .type = "N",
     .min = 0,
     .max = kMaxCount,
     .computed = "as many as there are addresses for",
     .live = true,
     .help = "Largest number of programs at a time; the daemon refuses more; 0: no such limit"},
    {.section = "metrics",
     .key = "listen",
     .flag = "metrics",
     .field = &Config::metrics_listen,
     .type = "ADDRESS",
     .computed = "off",
     .help = "The address for HTTP, where the daemon serves /metrics and the dashboard"},
    {.section = "metrics",
     .key = "socket_mode",
     .field = &Config::metrics_socket_mode,
     .type = "OCTAL",
     .help = "Users that may connect, as a mode of chmod, if the address is a unix socket"},
    {.section = "metrics",
     .key = "token_file",
     .flag = "metrics-token-file",
     .field = &Config::metrics_token_file,
     .type = "PATH",
     .computed = "no token",
     .help = "The file with the bearer token that every request must bring, of 16 to 4096 "
             "characters; read again for each request. An address that other machines reach needs "
             "one (docs/metrics.md)"},
    {.section = "metrics",
     .key = "dashboard",
     .flag = "dashboard",
     .field = &Config::dashboard,
     .choices = "on|off",
     .help = "Whether the daemon serves the dashboard, which shows programs and their process IDs"},
    {.section = "software_gpu",
     .key = "devices",
     .flag = "soft-devices",
     .field = &Config::soft_devices,
     .type = "N",
     .min = 1,
     .max = 8,
     .help = "Number of software GPUs"},
    {.section = "software_gpu",
     .key = "sms",
     .flag = "soft-sms",
     .field = &Config::soft_sms,
     .type = "N",
     .min = 1,
     .max = 1024,
     .help = "SMs of a software GPU"},
    {.section = "software_gpu",
     .key = "memory",
     .flag = "soft-memory",
     .field = &Config::soft_memory,
     .type = "SIZE",
     .min = 1 << 20,
     .max = int64_t{1} << 42,
     .help = "Memory of a software GPU"},
    {.section = "software_gpu",
     .key = "compute_capability",
     .flag = "soft-cc",
     .field = &Config::soft_cc,
     .type = "X.Y",
     .help = "Compute capability of a software GPU"},
    {.section = "software_gpu",
     .key = "threads",
     .flag = "soft-threads",
     .field = &Config::soft_threads,
     .type = "N",
     .min = 1,
     .max = 4096,
     .computed = "one for each core",
     .help = "Threads that run the kernels of a software GPU"},
    {.section = "policy",
     .key = "name",
     .flag = "policy",
     .field = &Config::policy,
     .type = "NAME",
     .live = true,
     .help = "The policy that decides which program runs on which SMs, and when"},
    {.section = "policy",
     .key = "placement",
     .flag = "placement",
     .field = &Config::placement,
     .choices = "workload-aware|best-fit|round-robin",
     .live = true,
     .help = "The placement that chooses devices for programs that get only some of them (devices "
             "of a tenant, detshare run --devices)"},
    {.section = "tenant_defaults",
     .key = "memory",
     .field = &Config::default_memory,
     .type = "SIZE",
     .min = 0,
     .max = int64_t{1} << 52,
     .computed = "no limit",
     .live = true,
     .help = "Device memory, on each device; 0: no limit"},
    {.section = "tenant_defaults",
     .key = "pinned_memory",
     .field = &Config::default_pinned_memory,
     .type = "SIZE",
     .min = 0,
     .max = int64_t{1} << 52,
     .computed = "no limit",
     .live = true,
     .help =
         "Pinned and registered host memory, and managed memory without an engine; 0: no limit"},
    {.section = "tenant_defaults",
     .key = "sessions",
     .field = &Config::default_sessions,
     .type = "N",
     .min = 0,
     .max = 1'000'000,
     .computed = "no limit",
     .live = true,
     .help = "Programs at a time; 0: no limit"},
    {.section = "tenant_defaults",
     .key = "devices",
     .field = &Config::default_devices,
     .type = "N",
     .min = 0,
     .max = 1'000'000,
     .computed = "all",
     .live = true,
     .help = "Largest number of devices of a program; 0: all devices of the host"},
    {.section = "limits",
     .key = "contexts",
     .field = &Config::contexts,
     .type = "N",
     .min = 1,
     .max = kMaxContexts,
     .live = true,
     .help = "Contexts"},
    {.section = "limits",
     .key = "streams",
     .field = &Config::streams,
     .type = "N",
     .min = 1,
     .max = kMaxStreams,
     .live = true,
     .help = "Streams"},
    {.section = "limits",
     .key = "events",
     .field = &Config::events,
     .type = "N",
     .min = 1,
     .max = kMaxEvents,
     .live = true,
     .help = "Events"},
    {.section = "limits",
     .key = "libraries",
     .field = &Config::libraries,
     .type = "N",
     .min = 1,
     .max = kMaxLibraries,
     .live = true,
     .help = "Loaded modules and libraries"},
    {.section = "limits",
     .key = "kernels",
     .field = &Config::kernels,
     .type = "N",
     .min = 1,
     .max = kMaxKernels,
     .live = true,
     .help = "Kernels"},
    {.section = "limits",
     .key = "arrays",
     .field = &Config::arrays,
     .type = "N",
     .min = 1,
     .max = kMaxCount,
     .live = true,
     .help = "CUDA arrays"},
    {.section = "limits",
     .key = "textures",
     .field = &Config::textures,
     .type = "N",
     .min = 1,
     .max = kMaxCount,
     .live = true,
     .help = "Texture and surface objects"},
    {.section = "limits",
     .key = "graphs",
     .field = &Config::graphs,
     .type = "N",
     .min = 1,
     .max = kMaxCount,
     .live = true,
     .help = "Executable graphs"},
    {.section = "limits",
     .key = "code_mib",
     .field = &Config::code_mib,
     .type = "MIB",
     .min = 1,
     .max = 1 << 20,
     .live = true,
     .help = "Loaded code, in all"},
    {.section = "limits",
     .key = "graph_mib",
     .field = &Config::graph_mib,
     .type = "MIB",
     .min = 1,
     .max = 1 << 20,
     .live = true,
     .help = "Descriptions of executable graphs, in all"},
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
     "Pinned and registered host memory of all of its programs together"},
    {"sessions", "N", &TenantQuota::sessions,
     "Largest number of programs at a time; the daemon refuses more"},
    {"devices", "N", &TenantQuota::devices,
     "Largest number of devices of a program. The placement chooses them when the program begins, "
     "and the program numbers them from 0. Without it: all devices of the host"},
    {"slo_latency", "DURATION", &policy::Tenant::slo_latency,
     "Objective for the time of a burst of work, from its first operation to its end. On a device "
     "that can preempt, a request may be delayed until half of this time, so that other programs "
     "have the device while its operations come one by one (docs/scheduling.md)"},
    {"slo_ttft", "DURATION", &policy::Tenant::slo_ttft,
     "Objective for the time to the first token"},
    {"slo_tpot", "DURATION", &policy::Tenant::slo_tpot, "Objective for the time per output token"},
    {"users", "[NAME, ...]", &TenantConfig::users,
     "Users that may be this tenant. The first tenant that names a user is the default of that "
     "user. Without users and groups, all users may"},
    {"groups", "[NAME, ...]", &TenantConfig::groups, "Groups whose members may be this tenant"},
    {"group", "NAME", &TenantConfig::group,
     "With isolation = \"group\": the isolation group. Tenants that name the same group share an "
     "engine, and trust each other. Without it, the tenant has an engine of its own"},
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
                             x.groups == y.groups && x.group == y.group;
                    }) &&
         a.unlisted_tenants == b.unlisted_tenants;
}

// Returns the one way to write the path, also if its last parts do not exist yet.
std::filesystem::path Resolved(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  std::filesystem::path resolved = std::filesystem::weakly_canonical(whole, error);
  if (error) resolved = whole.lexically_normal();
  return resolved.has_filename() ? resolved : resolved.parent_path();
}

std::vector<std::string> CautionsOfIsolation(const Config& config) {
  std::vector<std::string> lines;
  const auto idle = [&lines](const char* key) {
    lines.push_back(absl::StrCat("[daemon] ", key, ": has no effect with isolation = \"none\""));
  };
  if (config.isolation == "none" && !config.engine_users.empty()) idle("engine_users");
  if (config.isolation == "none" && config.spare_engines > 0) idle("spare_engines");
  for (const TenantConfig& tenant : config.tenants) {
    if (tenant.group.empty() || config.isolation == "group") continue;
    lines.push_back(absl::StrCat("[[tenant]] ", tenant.tenant.name,
                                 ": group has no effect without isolation = \"group\""));
  }
  return lines;
}

std::vector<std::string> CautionsOfLimits(const Config& config) {
  const bool defaults = config.default_memory != 0 || config.default_pinned_memory != 0 ||
                        config.default_sessions != 0;
  std::vector<std::string> lines;
  for (const TenantConfig& tenant : config.tenants) {
    const TenantQuota& quota = tenant.quota;
    const bool limited = quota.memory != 0 || quota.pinned_memory != 0 || quota.sessions != 0;
    if (!limited || defaults || config.unlisted_tenants != "allow") continue;
    lines.push_back(
        absl::StrCat("[[tenant]] ", tenant.tenant.name,
                     ": programs get around its limits by naming a tenant that has no "
                     "section: set unlisted_tenants = \"refuse\" in [daemon], or limits "
                     "in [tenant_defaults]"));
  }
  return lines;
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
    if (setting.type == "UIDS")
      return "a range of at most 65536 user IDs above 0, as \"2000000000-2000000999\"";
    if (setting.flag == kSocketFlag)
      return absl::StrCat("an absolute path of at most ", kMaxSocketPath, " characters");
    if (setting.type == "PATH" || setting.type == "DIR") return "an absolute path";
    if (setting.type == "X.Y") return "a major and a minor number in quotes, as \"9.0\"";
    if (setting.type == "NAME") return "the name of a policy, or the path of a shared object";
    return "a text";
  }
  if (setting.type == "SIZE") {
    return absl::StrCat("a size (\"4GiB\", or bytes) of ", SizeText(setting.min), " to ",
                        SizeText(setting.max));
  }
  return absl::StrCat(setting.min, " to ", setting.max);
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
  } else if (setting.type == "UIDS") {
    allowed = ParseUserRange(text).has_value();
  } else if (setting.type == "X.Y") {
    int major = 0, minor = 0;
    allowed = ParseComputeCapability(text, &major, &minor);
  } else if (setting.flag == kSocketFlag) {
    allowed = allowed && !text.empty() && text.size() <= kMaxSocketPath && text.back() != '/';
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
  const int64_t value = config.*std::get<int64_t Config::*>(setting.field);
  return setting.type == "SIZE" && value != 0 ? Quoted(SizeText(value)) : absl::StrCat(value);
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

std::string SizeText(int64_t bytes) {
  constexpr absl::string_view kUnits[] = {"", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrCat(bytes, kUnits[unit]);
}

bool ParseComputeCapability(absl::string_view text, int* major, int* minor) {
  const std::vector<absl::string_view> numbers = absl::StrSplit(text, '.');
  return numbers.size() == 2 && text.size() <= 7 &&
         text.find_first_not_of("0123456789.") == text.npos &&
         absl::SimpleAtoi(numbers[0], major) && absl::SimpleAtoi(numbers[1], minor);
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

absl::Status CheckMetrics(const Config& config) {
  if (config.metrics_listen.empty() || !config.metrics_token_file.empty()) return absl::OkStatus();
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(config.metrics_listen);
  if (!address.ok() || !IsExposed(*address)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "[metrics] listen: other machines reach ", config.metrics_listen,
      ": name a token_file, too (--metrics-token-file), or use a loopback address or a unix "
      "socket"));
}

absl::Status CheckRuntimeDirectory(const std::string& runtime_directory,
                                   const std::string& socket) {
  const std::string beside = std::filesystem::path(socket).parent_path();
  if (Resolved(runtime_directory) == Resolved(beside.empty() ? "." : beside))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "runtime_dir is ", runtime_directory, ", and the socket is in ", beside,
      ": programs look for the files of their sessions beside the socket. Leave runtime_dir out, "
      "and put the socket there: --socket ",
      runtime_directory, "/detshared.sock"));
}

std::vector<std::string> Obstacles(const Config& config) {
  std::vector<std::string> lines;
  if (const absl::Status metrics = CheckMetrics(config); !metrics.ok())
    lines.emplace_back(metrics.message());
  if (!config.runtime_dir.empty()) {
    const std::string socket = config.socket.empty() ? std::string(kDefaultSocket) : config.socket;
    const absl::Status runtime = CheckRuntimeDirectory(config.runtime_dir, socket);
    if (!runtime.ok()) lines.emplace_back(runtime.message());
  }
  return lines;
}

std::vector<std::string> Cautions(const Config& config) {
  std::vector<std::string> lines = CautionsOfIsolation(config);
  for (std::string& line : CautionsOfLimits(config)) lines.push_back(std::move(line));
  return lines;
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
