// The operator's configuration of the daemon, from a file and from flags, and the table of all
// settings. The parser, the flags, the defaults, `detsharectl config` and the documentation are
// made from this table. So a new setting is a field of Config and a row of the table in config.cc.
//
// Nothing here opens a file, a device or a socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "policy/config/tenant_quota.h"
#include "policy/policy.h"

namespace detshare {

inline constexpr char kDefaultConfigFile[] = "/etc/detshare/detshare.toml";
inline constexpr absl::string_view kDefaultSocket = "/run/detshare/detshared.sock";
// The longest path of a daemon's socket. The system allows 107 characters, and the daemon makes the
// socket as PATH.new.
inline constexpr size_t kMaxSocketPath = 103;

// One [[tenant]] of the file.
struct TenantConfig {
  policy::Tenant tenant;
  TenantQuota quota;
  // The users and groups that may be this tenant, beside root: names, or ids as numbers. If both
  // are empty, any user may be.
  std::vector<std::string> users, groups;
  // With isolation = "group": the isolation group, whose tenants share an engine; "": its own.
  std::string group;
};

// The values of all settings. 0, -1 or "" of a setting with a computed default: not set.
struct Config {
  // [daemon]
  std::string socket;
  std::string socket_mode = "600";
  std::string runtime_dir;
  std::string backend = "auto";
  std::string log_level = "info";
  std::string unlisted_tenants = "allow";
  std::string isolation = "none";
  std::string engine_users;
  int64_t spare_engines = -1;
  std::string profile_dir;
  std::string admin_group = "detshare-admin";
  int64_t session_slots = 0;
  int64_t spin_us = -1, client_spin_us = -1;
  int64_t staging_mib = 0;
  int64_t image_store_mib = 1024;
  int64_t swap_memory = -1;  // bytes
  std::string cuda_driver;
  int64_t cuda_sm_group = 8;
  std::string preemption = "auto";
  int64_t max_sessions = 0;
  // [metrics]
  std::string metrics_listen;
  std::string metrics_socket_mode = "660";
  std::string metrics_token_file;
  std::string dashboard = "on";
  // [software_gpu]
  int64_t soft_devices = 1;
  int64_t soft_sms = 132;
  int64_t soft_memory = int64_t{8} << 30;  // bytes
  std::string soft_cc = "9.0";
  int64_t soft_threads = 0;
  // [policy]
  std::string policy = "auto";
  std::string placement = "workload-aware";
  std::map<std::string, std::string> policy_parameters;  // [policy.parameters], as text
  // [tenant_defaults]
  int64_t default_memory = 0;         // bytes
  int64_t default_pinned_memory = 0;  // bytes
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
struct ConfigSetting {
  absl::string_view section, key;  // in the file
  absl::string_view flag;          // without the dashes; "": the setting has no flag
  std::variant<std::string Config::*, int64_t Config::*> field;
  // The name of the value in help texts: PATH, MIB, ... A SIZE is bytes; as a text it may have a
  // unit.
  absl::string_view type;
  absl::string_view choices;   // the allowed values, separated by |; "": see `least` and `most`
  int64_t min = 0, max = 0;    // inclusive bounds of a number
  absl::string_view computed;  // the default in words, if it is not a constant
  absl::string_view packaged;  // the value in the packages' configuration file; "": the default
  bool live = false;           // a reload of the configuration changes the setting
  absl::string_view help;
};

// All settings, those of a section in a row.
absl::Span<const ConfigSetting> AllConfigSettings();
// Null if there is no such setting.
const ConfigSetting* FindConfigSetting(absl::string_view section, absl::string_view key);

// One key of a [[tenant]].
struct TenantKey {
  struct Name {};
  struct Class {};
  struct SmBounds {};
  absl::string_view key, type;
  std::variant<Name, Class, SmBounds, double policy::Tenant::*, int policy::Tenant::*,
               bool policy::Tenant::*, policy::Nanoseconds policy::Tenant::*,
               std::vector<std::string> TenantConfig::*, std::string TenantConfig::*,
               uint64_t TenantQuota::*>
      field;
  absl::string_view help;
};

absl::Span<const TenantKey> TenantKeys();

// Sets a setting from its text, as a flag has it. InvalidArgument with the allowed values.
absl::Status SetFromText(const ConfigSetting& setting, absl::string_view text, Config* config);
// The same for a setting that is a number.
absl::Status SetNumber(const ConfigSetting& setting, int64_t value, Config* config);
// The allowed values as messages name them: "auto, cuda or soft"; "1 to 1024".
std::string Allowed(const ConfigSetting& setting);
// The setting's value in TOML's notation.
std::string ValueText(const ConfigSetting& setting, const Config& config);
// Whether the setting has its default value.
bool IsDefault(const ConfigSetting& setting, const Config& config);

// Takes "5ms", "30us", "1s", "250ns". False for other texts, and for more than about 290 years.
bool ParseDuration(absl::string_view text, policy::Nanoseconds* duration);
std::string DurationText(policy::Nanoseconds duration);
// The shortest text of which TOML makes the same number.
std::string NumberText(double number);
// Takes "1GiB", "256 MB" (both are powers of 1024), "4096". False for other texts.
bool ParseSize(absl::string_view text, int64_t* bytes);
// A text of which ParseSize() makes the same number: "64MiB", "4096TiB", "1000".
std::string SizeText(int64_t bytes);
// Takes "9.0", for the compute capability 9.0. False for other texts.
bool ParseComputeCapability(absl::string_view text, int* major, int* minor);
// Whether the text has no control characters.
bool IsPlain(absl::string_view text);
// Whether a tenant may have this name: 1 to 64 letters, digits and -_.@, so that it can stand in a
// table, a log and a path.
bool IsTenantName(absl::string_view name);

// InvalidArgument if other machines reach the address of the metrics and need no token.
absl::Status CheckMetrics(const Config& config);

// InvalidArgument unless the runtime directory is that of the socket, where clients look for the
// files of their sessions. The two may be written differently.
absl::Status CheckRuntimeDirectory(const std::string& runtime_directory, const std::string& socket);

// Returns a line for each reason why a daemon does not start with the configuration of a valid file,
// if no flag changes it. The parser does not know the flags.
std::vector<std::string> Obstacles(const Config& config);

// Returns a line for each part of a valid configuration that probably does less than its author
// wants.
std::vector<std::string> Cautions(const Config& config);

// ---- a change of the configuration while the daemon runs
// Texts name settings as "[daemon] log_level".
struct ConfigChange {
  std::vector<std::string> live;     // changes that a reload puts in force
  std::vector<std::string> restart;  // changes that need a restart of the daemon
  bool access = false;               // the rules changed that say which users may be which tenant
};
ConfigChange Compare(const Config& before, const Config& after);

}  // namespace detshare
