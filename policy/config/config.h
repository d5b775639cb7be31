// What the operator says to the daemon, in a file and by flags, and the one table of what can be
// said: the parser, the flags, the defaults, `detsharectl config` and the documentation are made
// from it.
//
// Pure: nothing here opens a file, a device or a socket.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "policy/policy.h"
#include "policy/config/tenant_quota.h"

namespace detshare {

inline constexpr char kDefaultConfigFile[] = "/etc/detshare/detshare.toml";
inline constexpr absl::string_view kDefaultSocket = "/run/detshare/detshared.sock";

// A [[tenant]] of the file.
struct TenantConfig {
  policy::Tenant tenant;
  TenantQuota quota;
  // Who may be it, beside root; neither: anybody. Names, or numbers of ids.
  std::vector<std::string> users, groups;
};

// 0, -1 and "" of a setting with a computed default: nothing was said.
struct Config {
  // [daemon]
  std::string socket;
  std::string socket_mode = "666";
  std::string runtime_dir;
  std::string backend = "auto";
  std::string log_level = "info";
  std::string unlisted_tenants = "allow";
  std::string isolation = "shared";
  std::string profile_dir;
  std::string admin_group = "detshare-admin";
  int64_t session_slots = 0;
  int64_t spin_us = -1, client_spin_us = -1;
  int64_t staging_mib = 0;
  int64_t image_store_mib = 1024;
  int64_t swap_memory = -1;  // bytes
  std::string cuda_driver;
  int64_t cuda_sm_group = 8;
  int64_t max_sessions = 0;
  // [metrics]
  std::string metrics_listen;
  std::string metrics_socket_mode = "660";
  std::string dashboard = "on";
  // [software_gpu]
  int64_t soft_devices = 1;
  int64_t soft_sms = 0;
  int64_t soft_memory = 0;  // bytes
  std::string soft_cc;
  int64_t soft_threads = 0;
  // [policy]
  std::string policy = "auto";
  std::string placement = "workload-aware";
  std::map<std::string, std::string> policy_parameters;  // [policy.parameters], as text
  // [tenant_defaults]
  int64_t default_memory = 0;  // bytes, as below
  int64_t default_pinned_memory = 0;
  int64_t default_sessions = 0;
  int64_t default_devices = 0;
  // [limits], of one session
  int64_t contexts = 1024;
  int64_t streams = 16384;
  int64_t events = 1 << 20;
  int64_t libraries = 65536;
  int64_t kernels = 1 << 20;
  int64_t arrays = 1 << 16;
  int64_t textures = 1 << 18;
  int64_t graphs = 65536;
  int64_t code_mib = 8192;
  int64_t graph_mib = 1024;
  // [[tenant]]
  std::vector<TenantConfig> tenants;
};

// One setting. It has a place in the file, or a flag, or both.
struct Setting {
  absl::string_view section, key;  // in the file
  absl::string_view flag;          // "": the file only
  std::variant<std::string Config::*, int64_t Config::*> field;
  absl::string_view type;     // for people: PATH, MIB, ...; SIZE is bytes, with a unit in a string
  absl::string_view choices;  // what is allowed, separated by |; "": see least and most
  int64_t least = 0, most = 0;  // of numbers
  absl::string_view computed;   // the default in words, when it is no constant
  bool live = false;            // a reload changes it
  absl::string_view help;
};

absl::Span<const Setting> AllSettings();
// Nullptr when there is none.
const Setting* FindSetting(absl::string_view section, absl::string_view key);

// One key of a [[tenant]].
struct TenantKey {
  struct Name {};
  struct Class {};
  struct SmBounds {};
  absl::string_view key, type;
  std::variant<Name, Class, SmBounds, double policy::Tenant::*, int policy::Tenant::*,
               policy::Nanoseconds policy::Tenant::*, std::vector<std::string> TenantConfig::*,
               uint64_t TenantQuota::*>
      field;
  absl::string_view help;
};

absl::Span<const TenantKey> TenantKeys();

// Sets one setting by its text, as a flag has it. InvalidArgument with what is allowed.
absl::Status SetFromText(const Setting& setting, absl::string_view text, Config* config);
absl::Status SetNumber(const Setting& setting, int64_t value, Config* config);
// What is allowed, for people: "auto, cuda or soft"; "1 to 1024".
std::string Allowed(const Setting& setting);
// Its value in TOML's notation.
std::string ValueText(const Setting& setting, const Config& config);
// Whether it has the value that it has when nothing is said.
bool IsDefault(const Setting& setting, const Config& config);

// "5ms", "30us", "1s", "250ns". False for anything else, and beyond some 290 years.
bool ParseDuration(absl::string_view text, policy::Nanoseconds* duration);
std::string DurationText(policy::Nanoseconds duration);
// "1GiB", "256 MB" (the same units: powers of 1024), "4096". False for anything else.
bool ParseSize(absl::string_view text, int64_t* bytes);
// Without control characters.
bool IsPlain(absl::string_view text);
// A tenant's name: 1 to 64 letters, digits and signs that can stand in a table, a log and a path.
bool IsTenantName(absl::string_view name);

// ---- a change of the configuration while the daemon runs
struct ConfigChange {
  std::vector<std::string> live;     // "[daemon] log_level"
  std::vector<std::string> restart;  // what holds only when the daemon starts the next time
  bool access = false;               // who may be which tenant
};
ConfigChange Compare(const Config& before, const Config& after);

}  // namespace detshare
