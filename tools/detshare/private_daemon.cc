#include "tools/detshare/private_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "tools/detshare/execute.h"

namespace detshare::tools {
namespace {

constexpr int kReadyMilliseconds = 30000;
constexpr int kEndMilliseconds = 5000;

// Makes a directory, on a tmpfs if possible, with a path that is short enough for a unix socket. ""
// if it cannot.
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

}  // namespace

PrivateDaemon::~PrivateDaemon() {
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

bool PrivateDaemon::Start(const std::string& daemon, const Options& options) {
  directory_ = MakeDirectory();
  if (directory_.empty()) {
    std::fprintf(
        stderr,
        "detshare: cannot make a directory in /dev/shm, $XDG_RUNTIME_DIR or /tmp: make one "
        "of them writable, or free space there\n");
    return false;
  }
  socket_ = directory_ + "/detshared.sock";
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) {
    std::perror("detshare: pipe");
    return false;
  }
  const std::string ready_fd = std::to_string(ready[1]);
  std::vector<std::string> command = {
      daemon,        "--socket",        socket_,      "--backend", options.backend,
      "--log-level", options.log_level, "--ready-fd", ready_fd,    "--remove-runtime-dir"};
  command.insert(command.end(), options.flags.begin(), options.flags.end());
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    // The daemon ends with the launcher. It is in a process group of its own, so that Ctrl-C
    // reaches the program and not the daemon.
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
    std::fprintf(stderr, "detshare: %s; read its messages above\n",
                 polled == 0 ? "the private daemon did not become ready"
                             : "the private daemon ended at once");
  }
  return serves;
}

std::string FindProgram(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

}  // namespace detshare::tools
