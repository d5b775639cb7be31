#include "tools/trial/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tools/detshare/execute.h"
#include "tools/detshare/launch.h"

namespace detshare::trial {

Program::~Program() {
  if (in_ >= 0) close(in_);
  if (out_ >= 0) close(out_);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

absl::Status Program::Start(const std::vector<std::string>& command, const Way& way) {
  name_ = command.size() > 1 ? command[1] : command[0];
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  if (pipe2(from, O_CLOEXEC) != 0) {
    close(to[0]);
    close(to[1]);
    return absl::ErrnoToStatus(errno, "pipe");
  }
  in_ = to[1];
  out_ = from[0];
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(tools::kExitLauncher);
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    if (way.socket.empty()) {
      dup2(from[1], STDERR_FILENO);
      _exit(tools::Execute(command));
    }
    tools::RunOptions options;
    options.socket = way.socket;
    options.tenant = way.tenant;
    options.command = command;
    _exit(tools::Run(options));
  }
  close(to[0]);
  close(from[1]);
  if (pid_ < 0) return absl::ErrnoToStatus(errno, "fork");
  return absl::OkStatus();
}

absl::StatusOr<std::string> Program::Line(absl::Duration limit) {
  const absl::Time end = absl::Now() + limit;
  for (;;) {
    if (const size_t at = text_.find('\n'); at != std::string::npos) {
      std::string line = text_.substr(0, at);
      text_.erase(0, at + 1);
      return line;
    }
    pollfd wait{out_, POLLIN, 0};
    const int64_t left = std::max<int64_t>(0, absl::ToInt64Milliseconds(end - absl::Now()));
    const int polled = poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (polled < 0 && errno == EINTR) continue;
    if (polled == 0 && absl::Now() >= end)
      return absl::DeadlineExceededError(absl::StrCat(
          "the program \"", name_, "\" did not answer within ", absl::FormatDuration(limit)));
    char buffer[512];
    const ssize_t count = polled > 0 ? read(out_, buffer, sizeof(buffer)) : 0;
    if (polled > 0 && count <= 0)
      return absl::UnavailableError(
          absl::StrCat("the program \"", name_, "\" ended", text_.empty() ? "" : ": ", text_));
    if (count > 0) text_.append(buffer, static_cast<size_t>(count));
  }
}

absl::Status Program::WaitUntilReady(absl::Duration limit) {
  const absl::StatusOr<std::string> line = Line(limit);
  if (!line.ok()) return line.status();
  if (*line != "ready")
    return absl::UnavailableError(absl::StrCat("the program \"", name_, "\" says: ", *line));
  return absl::OkStatus();
}

void Program::Go() {
  // If the program has ended, Result() says so.
  if (write(in_, "\n", 1) != 1) return;
}

absl::StatusOr<nlohmann::json> Program::Result(absl::Duration limit) {
  const absl::StatusOr<std::string> line = Line(limit);
  if (!line.ok()) return line.status();
  nlohmann::json result = nlohmann::json::parse(*line, nullptr, /*allow_exceptions=*/false);
  if (!result.is_object())
    return absl::UnavailableError(absl::StrCat("the program \"", name_, "\" says: ", *line));
  return result;
}

}  // namespace detshare::trial
