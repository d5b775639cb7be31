#include "tools/slurm/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace detshare::slurm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxOutput = 64 << 10;

struct Pipe {
  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) ends[0] = ends[1] = -1;
  }
  ~Pipe() {
    Close(0);
    Close(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void Close(int end) {
    if (ends[end] >= 0) close(ends[end]);
    ends[end] = -1;
  }

  int ends[2];
};

// Reads what is there. Closes the pipe at its end.
void Read(Pipe* from, std::string* text) {
  char buffer[4096];
  const ssize_t bytes = read(from->ends[0], buffer, sizeof(buffer));
  if (bytes < 0 && errno == EINTR) return;
  if (bytes <= 0) return from->Close(0);
  text->append(buffer, std::min(static_cast<size_t>(bytes), kMaxOutput - text->size()));
}

int MillisecondsUntil(Clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

// Returns whether the process has ended; then `status` is as of waitpid().
bool AwaitEnd(pid_t process, Clock::time_point until, int* status) {
  for (;;) {
    const pid_t ended = waitpid(process, status, WNOHANG);
    if (ended == process) return true;
    if (ended < 0 && errno != EINTR) return false;
    if (Clock::now() >= until) return false;
    poll(nullptr, 0, 5);
  }
}

}  // namespace

absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& arguments,
                                         std::chrono::milliseconds timeout) {
  Pipe output, errors;
  if (output.ends[0] < 0 || errors.ends[0] < 0)
    return absl::UnavailableError(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const char* const conf = std::getenv("SLURM_CONF");
  std::string path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
  std::string slurm_conf = absl::StrCat("SLURM_CONF=", conf != nullptr ? conf : "");
  char* const environment[] = {path.data(), conf != nullptr ? slurm_conf.data() : nullptr, nullptr};

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output.ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, errors.ends[1], 2);
  // Slurm blocks signals in some of its processes.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t process = 0;
  const int error = posix_spawn(&process, argv[0], &actions, &attributes, argv.data(), environment);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot run ", arguments[0], ": ", std::strerror(error)));
  }
  output.Close(1);
  errors.Close(1);

  const Clock::time_point until = Clock::now() + timeout;
  CommandResult result;
  while (output.ends[0] >= 0 || errors.ends[0] >= 0) {
    pollfd readable[] = {{output.ends[0], POLLIN, 0}, {errors.ends[0], POLLIN, 0}};
    const int ready = poll(readable, 2, MillisecondsUntil(until));
    if (ready == 0) break;
    if (ready < 0) continue;
    if (readable[0].revents != 0) Read(&output, &result.output);
    if (readable[1].revents != 0) Read(&errors, &result.errors);
  }
  int status = 0;
  if (!AwaitEnd(process, until, &status)) {
    kill(process, SIGKILL);
    waitpid(process, &status, 0);
    return absl::DeadlineExceededError(
        absl::StrCat(arguments[0], " has not ended after ", timeout.count(), " ms"));
  }
  if (!WIFEXITED(status)) {
    return absl::UnavailableError(
        absl::StrCat(arguments[0], " was ended by signal ", WTERMSIG(status)));
  }
  result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace detshare::slurm
