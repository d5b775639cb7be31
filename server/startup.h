// A process of the daemon settles this before it serves: its options, the sockets and descriptors
// that it inherits, and its signals.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/config/config.h"
#include "server/backends.h"
#include "server/daemon.h"
#include "server/flags.h"
#include "server/service_manager.h"

namespace detshare {

struct Startup {
  std::vector<std::string> command;  // the command line of this process, with the program's name
  Flags flags;
  Config config;            // the configuration with which this process has started
  std::string config_text;  // of the file, from which `config` was made; "": there is none
  // Made from `flags` and `config`, as far as they do not depend on the backend. The socket and the
  // runtime directory are set.
  Daemon::Options daemon;
  BackendOptions backend;
  ServiceManager service_manager = ServiceManager::FromEnvironment();
  int signal_fd = -1;  // a signalfd of SIGTERM, SIGINT and SIGHUP
};

// Reads the configuration, sets the log level and the limit of descriptors, takes the socket of the
// service manager, and blocks the signals of signal_fd. Called once, before the process has other
// threads, so that all threads inherit the blocked signals. The message of an error has a line for
// each mistake.
absl::StatusOr<Startup> Prepare(std::vector<std::string> command, const Flags& flags);

// Reads the configuration again, for a reload. Returns the errors of ReadConfiguration(), and an
// error for a setting with which this daemon would not start again. `text` is as there. An engine
// leaves such settings to the supervisor.
absl::StatusOr<Config> ReadAgain(const Startup& startup, std::string* text = nullptr);

// Tells the service manager and the process that started this one that clients can connect. Called
// at most once.
void AnnounceReady(const Startup& startup);

// The request that a signal stands for. kEnd: this process ends. kEndAll: so do its engines, if it
// is a supervisor.
enum class SignalRequest { kNothing, kReload, kEnd, kEndAll };
// Takes a signal from signal_fd, which is readable. SIGHUP asks for a reload if there is a
// configuration file. SIGTERM asks for kEnd, and any other signal for kEndAll.
SignalRequest TakeSignal(const Startup& startup);

}  // namespace detshare
