#include "server/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "coroutine_runtime/fresh_address.h"
#include "policy/config/config_file.h"
#include "policy/status_macros.h"
#include "proto/command_line.h"
#include "proto/ring_abi.h"
#include "proto/version.h"

namespace detshare {
namespace {

constexpr int kUsageExit = 2;  // for a command line that is not valid

// Adds a flag for each setting that has one.
void AddSettings(CLI::App& app, Flags& flags) {
  for (const ConfigSetting& setting : AllConfigSettings()) {
    if (setting.flag.empty()) continue;
    std::string help(setting.help);
    if (!setting.computed.empty()) absl::StrAppend(&help, " [", setting.computed, "]");
    CLI::Option* const option = app.add_option_function<std::string>(
        absl::StrCat("--", setting.flag),
        [&flags, &setting](const std::string& text) {
          flags.settings.emplace_back(&setting, text);
        },
        help);
    option->type_name(
        setting.choices.empty()
            ? std::string(setting.type)
            : absl::StrCat("{", absl::StrReplaceAll(setting.choices, {{"|", ","}}), "}"));
    option->check([&setting](const std::string& text) {
      Config scratch;
      return std::string(SetFromText(setting, text, &scratch).message());
    });
    if (setting.flag == "socket") option->envname("DETSHARE_SOCKET");
  }
}

void AddAddressWindows(CLI::App& app, AddressWindows& windows) {
#if defined(__SANITIZE_THREAD__)
  // The sanitizer uses the default range itself. This is the most that it leaves, for 20 sessions.
  windows.device_base = 0x7E9000000000;
  windows.device_bytes = uint64_t{16} << 30;
  windows.pinned_base = 0x7EE000000000;
  windows.pinned_bytes = uint64_t{1} << 30;
#endif
  app.add_option("--device-window-base", windows.device_base,
                 "First device address of all sessions")
      ->group("Address windows");
  app.add_option("--device-window-bytes", windows.device_bytes, "Device addresses of one session")
      ->group("Address windows");
  app.add_option("--pinned-window-base", windows.pinned_base, "First address of pinned host memory")
      ->group("Address windows");
  app.add_option("--pinned-window-bytes", windows.pinned_bytes, "Pinned addresses of one session")
      ->group("Address windows");
  app.add_option("--fresh-window-base", fresh_window_base,
                 "First address of the daemon's own memory that devices access")
      ->group("Address windows");
}

// Adds the flags that the daemon, the launcher and the tests give to the processes that they start.
// The help does not show them.
void AddInternalFlags(CLI::App& app, Flags& flags) {
  app.add_option("--listen-fd", flags.listen_fd)->group("");
  app.add_option("--first-session", flags.server.first_session)->group("");
  app.add_option("--device-losses", flags.device_losses)->group("");
  app.add_option("--ready-fd", flags.ready_fd)->group("");
  app.add_option("--devices-fd", flags.devices_fd)->group("");
  app.add_option("--engine", flags.engine)->group("");
  app.add_option("--engine-directory", flags.engine_directory)->group("");
  app.add_option("--engine-fd", flags.engine_fd)->group("");
  app.add_option("--admission-fd", flags.admission_fd)->group("");
  app.add_option("--files-fd", flags.files_fd)->group("");
  app.add_option("--engine-user", flags.engine_user)->group("");
  app.add_option("--engine-group", flags.engine_group)->group("");
  app.add_option("--engine-idle-ms", flags.engine_idle_ms)->group("");
  app.add_flag("--remove-runtime-dir", flags.remove_runtime_directory)->group("");
  app.add_flag("--soft-lose-device-on-fault", flags.server.lose_device_on_fault)->group("");
  app.add_flag("--cuda-stand-in-groups", flags.cuda_stand_in_groups)->group("");
  app.add_flag("--soft-kernels-outlive-sessions", flags.soft_kernels_outlive_sessions)->group("");
}

// Sets the share of the tenant in `text`, "NAME=PERCENT". Adds the tenant if the file does not have
// it.
absl::Status AddTenant(const std::string& text, Config* config) {
  const size_t equals = text.rfind('=');
  int percent = 0;
  if (equals == std::string::npos || !IsTenantName(text.substr(0, equals)) ||
      !absl::SimpleAtoi(text.substr(equals + 1), &percent)) {
    return absl::InvalidArgumentError(absl::StrCat("--tenant is NAME=PERCENT, not ", text));
  }
  if (percent < 0 || percent > 100) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tenant ", text, ": the share of the SMs is 0 to 100 percent"));
  }
  const std::string name = text.substr(0, equals);
  auto tenant = std::find_if(config->tenants.begin(), config->tenants.end(),
                             [&](const TenantConfig& one) { return one.tenant.name == name; });
  if (tenant == config->tenants.end()) {
    tenant = config->tenants.emplace(config->tenants.end());
    tenant->tenant.name = name;
  }
  tenant->tenant.sm_percent = percent;
  return absl::OkStatus();
}

}  // namespace

std::optional<int> ParseFlags(int argc, const char* const* argv, Flags* flags) {
  CLI::App app("The daemon that owns the GPUs and shares them among CUDA programs.", "detshared");
  app.add_option("--config", flags->config_file,
                 "A file with any of these and more, detshare.toml(5); flags override it")
      ->type_name("FILE");
  AddSettings(app, *flags);
  app.add_option("--tenant", flags->tenants,
                 "A tenant's share of the SMs, for policies that know shares; may be repeated")
      ->type_name("NAME=PERCENT")
      ->allow_extra_args(false);
  app.add_option("--migrate-every", flags->server.migrate_every,
                 "Moves every session to other SMs after each N operations, whatever the policy "
                 "says, to verify that results do not depend on it [0: never]")
      ->type_name("N");
  AddAddressWindows(app, flags->server.windows);
  AddInternalFlags(app, *flags);
  return ParseCommandLine(app, {argv + 1, argv + argc}, kUsageExit,
                          absl::StrCat(kVersion, " (ABI ", kAbiVersion, ")"));
}

absl::StatusOr<Config> ReadConfiguration(const Flags& flags, std::string* text) {
  Config config;
  if (!flags.config_file.empty()) {
    DETSHARE_ASSIGN_OR_RETURN(config, LoadConfig(flags.config_file, text));
  }
  for (const auto& [setting, value] : flags.settings) {
    if (const absl::Status status = SetFromText(*setting, value, &config); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", setting->flag, ": ", std::string(status.message())));
    }
  }
  for (const std::string& tenant : flags.tenants) {
    DETSHARE_RETURN_IF_ERROR(AddTenant(tenant, &config));
  }
  DETSHARE_RETURN_IF_ERROR(CheckPolicy(config));
  DETSHARE_RETURN_IF_ERROR(CheckMetrics(config));
  return config;
}

std::vector<std::string> CommandWithout(const std::vector<std::string>& command,
                                        const std::vector<std::string>& flags) {
  std::vector<std::string> rest;
  for (size_t i = 0; i < command.size(); ++i) {
    const std::string flag = command[i].substr(0, command[i].find('='));
    if (std::find(flags.begin(), flags.end(), flag) == flags.end()) {
      rest.push_back(command[i]);
    } else if (flag == command[i]) {
      ++i;  // the value follows
    }
  }
  return rest;
}

}  // namespace detshare
