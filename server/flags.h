// The command line of detshared. Flags override the configuration file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/config/config.h"
#include "server/session/server_options.h"

namespace detshare {

struct Flags {
  std::string config_file;  // "": there is none
  // Settings of the configuration with their values, in the order of the command line.
  std::vector<std::pair<const ConfigSetting*, std::string>> settings;
  std::vector<std::string> tenants;  // NAME=PERCENT
  // Holds the options that only flags decide: the address windows, migrate_every, first_session and
  // lose_device_on_fault.
  ServerOptions server;
  bool soft_kernels_outlive_sessions = false;  // as in BackendOptions
  bool cuda_stand_in_groups = false;           // likewise
  int listen_fd = -1;                          // as Daemon::Options::listen_fd
  uint64_t device_losses = 0;                  // as Daemon::Options::device_losses
  int devices_fd = -1;                    // gets a description of the devices (device_inquiry.h)
  int ready_fd = -1;                      // gets a line once clients can connect; -1: none
  bool remove_runtime_directory = false;  // when the daemon ends

  // An engine gets these from the supervisor; "" and -1: this process is no engine.
  std::string engine;  // its isolation group; "": it is a spare one, and learns its group later
  std::string engine_directory;  // the name of its directory
  int engine_fd = -1;            // for EngineMember
  int admission_fd = -1;         // for AdmissionChannel
  int files_fd = -1;             // for FileChannel
  uint32_t engine_user = 0;      // as EngineUser; 0: the supervisor's user
  uint32_t engine_group = 0;
  int64_t engine_idle_ms = 30'000;  // the engine offers to end after this time without use
};

// Reads the command line. Returns the exit code if the process must end at once: after --help and
// --version, and after a mistake. The text or the message is printed then.
std::optional<int> ParseFlags(int argc, const char* const* argv, Flags* flags);

// Returns the configuration file with the flags over it. Returns the errors of LoadConfig(), and
// InvalidArgument for a flag or a policy's parameter that is not valid. The message has a line for
// each mistake. `text`: the file's text, "" without a file; may be null.
absl::StatusOr<Config> ReadConfiguration(const Flags& flags, std::string* text = nullptr);

// Returns `command` without these flags and their values, which are written as "--flag value" or
// "--flag=value".
std::vector<std::string> CommandWithout(const std::vector<std::string>& command,
                                        const std::vector<std::string>& flags);

}  // namespace detshare
