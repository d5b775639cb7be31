#include "tools/detshare/standalone.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tools/detshare/execute.h"
#include "tools/detshare/private_daemon.h"

namespace detshare::tools {
namespace {

constexpr int kForwarded[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                              SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH};

int ExitCode(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Waits for the program, and passes on the signals that a process sends to this process. Signals of
// the terminal reach the program by themselves.
int WaitForwarding(pid_t program, const sigset_t& signals) {
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(program, &status, WNOHANG);
    if (ended == program) return ExitCode(status);
    siginfo_t info;
    const int signal = sigwaitinfo(&signals, &info);
    if (signal <= 0 || signal == SIGCHLD) continue;
    if (info.si_code <= 0) kill(program, signal);
  }
}

}  // namespace

int RunStandalone(const RunOptions& options, const std::vector<std::string>& daemons) {
  const std::string daemon = FindProgram(daemons);
  if (daemon.empty()) {
    std::fprintf(stderr, "detshare: the daemon is not at %s; set DETSHARE_DAEMON to its path\n",
                 daemons.front().c_str());
    return kExitLauncher;
  }
  // The signals are blocked before the daemon and the program start, and sigwaitinfo() takes them.
  // So none is lost between the steps.
  sigset_t signals, before;
  sigemptyset(&signals);
  for (const int signal : kForwarded) sigaddset(&signals, signal);
  sigaddset(&signals, SIGCHLD);
  sigprocmask(SIG_BLOCK, &signals, &before);

  PrivateDaemon private_daemon;
  PrivateDaemon::Options how;
  how.backend = options.standalone;
  if (!options.log_level.empty()) how.log_level = options.log_level;
  if (!private_daemon.Start(daemon, how)) return kExitLauncher;
  setenv("DETSHARE_SOCKET", private_daemon.socket().c_str(), 1);
  const pid_t program = fork();
  if (program == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    _exit(Execute(options.command));
  }
  if (program < 0) {
    std::perror("detshare: fork");
    return kExitLauncher;
  }
  return WaitForwarding(program, signals);
}

}  // namespace detshare::tools
