#include "server/startup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "server/base/logging.h"
#include "server/daemon_options.h"
#include "server/directories.h"
#include "server/web/bearer_token.h"

namespace detshare {
namespace {

// Raises the limit to the highest allowed one, because sessions take many descriptors. A shell's
// usual 1,024 are meant for programs that use select().
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Takes the socket that the service manager has made, if it has made one.
absl::Status AdoptPassedSocket(Daemon::Options* daemon) {
  DETSHARE_ASSIGN_OR_RETURN(const std::optional<PassedSocket> passed, TakePassedSocket());
  if (!passed.has_value()) return absl::OkStatus();
  if (daemon->socket.empty()) daemon->socket = passed->path;
  if (daemon->socket != passed->path) {
    return absl::InvalidArgumentError(absl::StrCat("the service manager listens on ", passed->path,
                                                   ", not on ", daemon->socket,
                                                   ": change detshared.socket, too"));
  }
  daemon->listen_fd = passed->fd;
  daemon->keep_socket = true;
  return absl::OkStatus();
}

int BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &signals, SFD_CLOEXEC);
}

}  // namespace

absl::StatusOr<Startup> Prepare(std::vector<std::string> command, const Flags& flags) {
  Startup startup;
  startup.command = std::move(command);
  startup.flags = flags;
  DETSHARE_ASSIGN_OR_RETURN(startup.config, ReadConfiguration(flags, &startup.config_text));
  ApplyLogLevel(startup.config);
  // The supervisor says it for its engines.
  if (flags.engine_fd < 0) {
    for (const std::string& caution : Cautions(startup.config)) LogWarning(caution);
  }
  if (flags.engine_fd >= 0 && flags.engine_directory.empty())
    return absl::InvalidArgumentError("--engine-fd is for the daemon itself");
  RaiseDescriptorLimit();
  Daemon::Options& daemon = startup.daemon;
  daemon.server = flags.server;
  daemon.listen_fd = flags.listen_fd;
  daemon.device_losses = flags.device_losses;
  ApplyConfig(startup.config, &daemon, &startup.backend);
  startup.backend.soft_kernels_outlive_sessions = flags.soft_kernels_outlive_sessions;
  startup.backend.cuda_stand_in_groups = flags.cuda_stand_in_groups;
  DETSHARE_RETURN_IF_ERROR(AdoptPassedSocket(&daemon));
  if (daemon.socket.empty()) daemon.socket = std::string(kDefaultSocket);
  daemon.server.runtime_directory =
      RuntimeDirectory(daemon.server.runtime_directory, daemon.socket);
  // An engine gets the supervisor's directory, and may read another path of the socket.
  if (flags.engine_fd < 0) {
    DETSHARE_RETURN_IF_ERROR(CheckRuntimeDirectory(daemon.server.runtime_directory, daemon.socket));
  }
  if (daemon.listen_fd >= 0) fcntl(daemon.listen_fd, F_SETFD, FD_CLOEXEC);
  startup.signal_fd = BlockSignals();
  return startup;
}

absl::StatusOr<Config> ReadAgain(const Startup& startup, std::string* text) {
  DETSHARE_ASSIGN_OR_RETURN(Config config, ReadConfiguration(startup.flags, text));
  if (startup.flags.engine_fd >= 0) return config;
  std::string socket = config.socket;
  // The service manager may have named the socket.
  if (socket.empty())
    socket = startup.config.socket.empty() ? startup.daemon.socket : std::string(kDefaultSocket);
  DETSHARE_RETURN_IF_ERROR(
      CheckRuntimeDirectory(RuntimeDirectory(config.runtime_dir, socket), socket));
  if (!config.metrics_listen.empty() && !config.metrics_token_file.empty())
    DETSHARE_RETURN_IF_ERROR(BearerToken(config.metrics_token_file).Check());
  return config;
}

void AnnounceReady(const Startup& startup) {
  startup.service_manager.Ready();
  if (startup.flags.ready_fd < 0) return;
  [[maybe_unused]] const ssize_t written = write(startup.flags.ready_fd, "\n", 1);
  close(startup.flags.ready_fd);
}

SignalRequest TakeSignal(const Startup& startup) {
  signalfd_siginfo got{};
  if (read(startup.signal_fd, &got, sizeof(got)) != sizeof(got)) return SignalRequest::kNothing;
  if (got.ssi_signo == SIGHUP && !startup.flags.config_file.empty()) return SignalRequest::kReload;
  return got.ssi_signo == SIGTERM ? SignalRequest::kEnd : SignalRequest::kEndAll;
}

}  // namespace detshare
