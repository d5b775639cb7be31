#include "server/device_inquiry.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "server/backends.h"
#include "server/base/errno_text.h"
#include "server/base/logging.h"
#include "server/engines/engine_process.h"
#include "server/engines/spawn.h"
#include "server/flags.h"
#include "server/services/device_status.h"

namespace detshare {
namespace {

using Clock = std::chrono::steady_clock;

// The driver takes long to begin on hosts with many GPUs.
constexpr std::chrono::seconds kTimeout(60);
constexpr int kStopPollMs = 100;
constexpr size_t kMaxReply = 1 << 20;
constexpr int kDevicesFd = 3;

// Returns what the process writes until it closes its end.
absl::StatusOr<std::string> ReadReply(int fd, const std::atomic<bool>& stop) {
  const Clock::time_point end = Clock::now() + kTimeout;
  std::string reply;
  while (!stop && Clock::now() < end) {
    pollfd readable = {fd, POLLIN, 0};
    if (poll(&readable, 1, kStopPollMs) <= 0) continue;
    char piece[4096];
    const ssize_t bytes = read(fd, piece, sizeof(piece));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return absl::UnavailableError(ErrnoText(errno));
    if (bytes == 0) return reply;
    reply.append(piece, static_cast<size_t>(bytes));
    if (reply.size() > kMaxReply) break;
  }
  return absl::DeadlineExceededError("the process that opens them does not reply");
}

}  // namespace

absl::StatusOr<proto::Status> InquireDevices(std::vector<std::string> command,
                                             const std::atomic<bool>& stop) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ResourceExhaustedError(ErrnoText(errno));
  // Of the rest of its log, the supervisor says what matters. A flag may be there once.
  command = CommandWithout(command, {"--log-level"});
  command.insert(command.end(), {"--devices-fd", absl::StrCat(kDevicesFd), "--log-level", "error"});
  const absl::StatusOr<pid_t> child =
      Spawn("/proc/self/exe", std::move(command), {{kDevicesFd, ends[1]}}, "");
  close(ends[1]);
  if (!child.ok()) {
    close(ends[0]);
    return child.status();
  }
  const absl::StatusOr<std::string> reply = ReadReply(ends[0], stop);
  close(ends[0]);
  if (!reply.ok()) kill(*child, SIGKILL);
  waitpid(*child, nullptr, 0);
  if (!reply.ok()) return reply.status();
  proto::Status status;
  if (!status.ParseFromString(*reply) || status.devices_size() == 0)
    return absl::UnavailableError("they cannot be opened (the lines above say why)");
  return status;
}

void ReplyDevices(const Startup& startup) {
  BackendOptions options = startup.backend;
  options.managed = {};
  // The proof is made here, before any engine has work that would disturb it, unless the engines have one.
  options.only_describes = true;
  const std::string& runtime_directory = startup.daemon.server.runtime_directory;
  options.proof_directory = SharedDirectory(runtime_directory);
  options.daemon_number = NumberOfDaemon(runtime_directory);
  const absl::StatusOr<OpenedBackend> opened = OpenBackend(options);
  if (!opened.ok()) {
    LogErrorLines(opened.status().message());
    _exit(1);
  }
  proto::Status status;
  status.set_backend(opened->name);
  for (const std::unique_ptr<Device>& device : opened->devices) {
    proto::DeviceStatus* const one = status.add_devices();
    DescribeDevice(*device, one);
  }
  const std::string reply = status.SerializeAsString();
  const ssize_t written = write(startup.flags.devices_fd, reply.data(), reply.size());
  // The end of the process does nothing to engines. The driver's calls that destroy a context may end contexts
  // with conditional graphs (server/backends/cuda/graph_gate.h).
  _exit(written == static_cast<ssize_t>(reply.size()) ? 0 : 1);
}

}  // namespace detshare
