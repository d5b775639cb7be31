#include "tools/detshare/standalone.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace detshare::tools {
namespace {

constexpr int kForwarded[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                              SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH};
constexpr int kReadyMilliseconds = 30000;
constexpr int kEndMilliseconds = 5000;

// A fresh directory in memory with a path short enough for a unix socket; "" when there is none.
std::string MakeDirectory() {
  std::vector<std::string> parents = {"/dev/shm"};
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime == '/') {
    parents.push_back(runtime);
  }
  parents.push_back("/tmp");
  for (const std::string& parent : parents) {
    std::string path = parent + "/detshare-XXXXXX";
    if (path.size() < 80 && mkdtemp(path.data()) != nullptr) return path;
  }
  return "";
}

class PrivateDaemon {
 public:
  ~PrivateDaemon() {
    if (pid_ > 0) {
      kill(pid_, SIGTERM);
      for (int waited = 0; waitpid(pid_, nullptr, WNOHANG) == 0; waited += 5) {
        if (waited >= kEndMilliseconds) {
          kill(pid_, SIGKILL);
          waitpid(pid_, nullptr, 0);
          break;
        }
        usleep(5000);
      }
    }
    if (!directory_.empty()) {
      std::error_code ignored;
      std::filesystem::remove_all(directory_, ignored);
    }
  }

  // Starts it and waits until it serves. False after a message.
  bool Start(const std::string& daemon, const RunOptions& options) {
    directory_ = MakeDirectory();
    if (directory_.empty()) {
      std::fprintf(stderr,
                   "detshare: cannot make a directory in /dev/shm, $XDG_RUNTIME_DIR or /tmp\n");
      return false;
    }
    socket_ = directory_ + "/detshared.sock";
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) {
      std::perror("detshare: pipe");
      return false;
    }
    const std::string ready_fd = std::to_string(ready[1]);
    const std::string log_level = options.log_level.empty() ? "warning" : options.log_level;
    const std::vector<std::string> command = {
        daemon,        "--socket", socket_,      "--backend", options.standalone,
        "--log-level", log_level,  "--ready-fd", ready_fd,    "--remove-runtime-dir"};
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      // Ends with the launcher, but not by a Ctrl-C, which is for the program.
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(kExitLauncher);
      sigset_t none;
      sigemptyset(&none);
      sigprocmask(SIG_SETMASK, &none, nullptr);
      fcntl(ready[1], F_SETFD, 0);
      _exit(Execute(command));
    }
    close(ready[1]);
    if (pid_ < 0) {
      std::perror("detshare: fork");
      close(ready[0]);
      return false;
    }
    pollfd wait{ready[0], POLLIN, 0};
    int polled;
    do {
      polled = poll(&wait, 1, kReadyMilliseconds);
    } while (polled < 0 && errno == EINTR);
    char byte = 0;
    const bool serves = polled == 1 && read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    if (!serves) {
      std::fprintf(stderr, "detshare: the private daemon %s; its messages are above\n",
                   polled == 0 ? "does not become ready" : "ended at once");
    }
    return serves;
  }

  const std::string& socket() const { return socket_; }

 private:
  std::string directory_, socket_;
  pid_t pid_ = -1;
};

int ExitCode(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Waits for the program and hands on what is sent to this process alone. What the terminal sends,
// the program gets by itself.
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
  std::string daemon;
  for (const std::string& path : daemons) {
    if (daemon.empty() && access(path.c_str(), X_OK) == 0) daemon = path;
  }
  if (daemon.empty()) {
    std::fprintf(stderr, "detshare: the daemon is not at %s; set DETSHARE_DAEMON to its path\n",
                 daemons.front().c_str());
    return kExitLauncher;
  }
  // From here on signals are taken by sigwaitinfo(), so that none is lost between the steps.
  sigset_t signals, before;
  sigemptyset(&signals);
  for (const int signal : kForwarded) sigaddset(&signals, signal);
  sigaddset(&signals, SIGCHLD);
  sigprocmask(SIG_BLOCK, &signals, &before);

  PrivateDaemon private_daemon;
  if (!private_daemon.Start(daemon, options)) return kExitLauncher;
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
