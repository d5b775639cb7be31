#include "server/engines/engine_launch.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "server/base/errno_text.h"
#include "server/engines/code_cache.h"
#include "server/engines/engine_channel.h"
#include "server/engines/engine_process.h"
#include "server/engines/spawn.h"

namespace detshare {
namespace {

using Clock = std::chrono::steady_clock;

// Descriptors that an engine inherits besides the standard ones.
constexpr int kEngineFd = 3, kAdmissionFd = 4, kFilesFd = 5;
// An engine makes its socket before all else.
constexpr std::chrono::seconds kSocketTimeout(1);

void CloseIfOpen(int fd) {
  if (fd >= 0) close(fd);
}

// The channels to an engine, with both ends.
struct Channels {
  EngineChannel messages, admission, files;

  static absl::StatusOr<Channels> Make() {
    Channels made;
    for (EngineChannel* const one : {&made.messages, &made.admission, &made.files}) {
      absl::StatusOr<EngineChannel> channel = MakeEngineChannel();
      if (!channel.ok()) {
        made.CloseEngineEnds();
        made.CloseSupervisorEnds();
        return channel.status();
      }
      *one = *channel;
    }
    return made;
  }
  void CloseEngineEnds() const {
    for (const EngineChannel* const one : {&messages, &admission, &files}) CloseIfOpen(one->engine);
  }
  void CloseSupervisorEnds() const {
    for (const EngineChannel* const one : {&messages, &admission, &files})
      CloseIfOpen(one->supervisor);
  }
  SupervisorEnds supervisor_ends() const {
    return {messages.supervisor, admission.supervisor, files.supervisor};
  }
};

// Connects to the socket of an engine that waits for a supervisor.
absl::StatusOr<int> Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return absl::InvalidArgumentError("its path is long");
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    return fd;
  const int error = errno;
  CloseIfOpen(fd);
  if (error == EAGAIN) return absl::ResourceExhaustedError("it accepts no more supervisors");
  return absl::UnavailableError(ErrnoText(error));
}

// The same for an engine that may just have begun, and makes its socket soon.
absl::StatusOr<int> ConnectSoon(const std::string& path, int process) {
  const Clock::time_point until = Clock::now() + kSocketTimeout;
  for (;;) {
    absl::StatusOr<int> fd = Connect(path);
    if (fd.ok() || Clock::now() >= until ||
        AwaitProcessEnd(process, Clock::now() + std::chrono::milliseconds(5)))
      return fd;
  }
}

// Whether the process listens at the socket that `fd` is connected to.
bool IsPeer(int fd, pid_t pid) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == pid;
}

// Begins the process with its ends of the channels, and returns its pid.
absl::StatusOr<pid_t> SpawnEngine(const EngineLaunch& launch, const Channels& channels) {
  std::vector<std::string> command = launch.command;
  const auto add = [&command](const char* option, std::string value) {
    command.emplace_back(option);
    command.push_back(std::move(value));
  };
  if (launch.user.uid != 0) {
    add("--engine-user", absl::StrCat(launch.user.uid));
    add("--engine-group", absl::StrCat(launch.user.gid));
  }
  if (!launch.group.empty()) add("--engine", launch.group);
  add("--engine-directory", launch.directory);
  add("--engine-fd", absl::StrCat(kEngineFd));
  add("--admission-fd", absl::StrCat(kAdmissionFd));
  add("--files-fd", absl::StrCat(kFilesFd));
  return Spawn(launch.program.empty() ? "/proc/self/exe" : launch.program, std::move(command),
               {{kEngineFd, channels.messages.engine},
                {kAdmissionFd, channels.admission.engine},
                {kFilesFd, channels.files.engine}},
               CodeCacheVariable(launch.user, launch.group));
}

// Returns the engine that has begun. The caller owns the channels if this fails.
absl::StatusOr<LaunchedEngine> Launch(const EngineLaunch& launch, const Channels& channels) {
  LaunchedEngine engine;
  DETSHARE_ASSIGN_OR_RETURN(engine.pid, SpawnEngine(launch, channels));
  engine.process = static_cast<int>(syscall(SYS_pidfd_open, engine.pid, 0));
  if (engine.process < 0) {
    const int error = errno;
    kill(engine.pid, SIGKILL);
    waitpid(engine.pid, nullptr, 0);
    return absl::InternalError(absl::StrCat("pidfd: ", ErrnoText(error)));
  }
  engine.channels = channels.supervisor_ends();
  return engine;
}

// Makes this process the supervisor of the engine behind `socket`. The caller owns all descriptors.
absl::Status Adopt(int socket, pid_t pid, const Channels& channels) {
  if (!IsPeer(socket, pid)) return absl::PermissionDeniedError("another process is at its socket");
  return PassAdoption(socket, channels.admission.engine, channels.files.engine);
}

}  // namespace

absl::StatusOr<LaunchedEngine> LaunchEngine(const EngineLaunch& launch) {
  DETSHARE_ASSIGN_OR_RETURN(const Channels channels, Channels::Make());
  absl::StatusOr<LaunchedEngine> engine = Launch(launch, channels);
  channels.CloseEngineEnds();
  if (!engine.ok()) channels.CloseSupervisorEnds();
  return engine;
}

absl::StatusOr<SupervisorEnds> AdoptEngine(const std::string& directory, pid_t pid, int process) {
  DETSHARE_ASSIGN_OR_RETURN(const int socket, ConnectSoon(AdoptionSocket(directory), process));
  const absl::StatusOr<Channels> channels = Channels::Make();
  absl::Status adopted = channels.status();
  if (adopted.ok()) {
    adopted = Adopt(socket, pid, *channels);
    channels->CloseEngineEnds();
    if (!adopted.ok()) channels->CloseSupervisorEnds();
  }
  if (!adopted.ok()) {
    close(socket);
    return adopted;
  }
  // The engine's messages come over its socket.
  close(channels->messages.supervisor);
  SupervisorEnds ends = channels->supervisor_ends();
  ends.messages = socket;
  return ends;
}

bool EngineUses(const std::string& directory) {
  const absl::StatusOr<int> fd = Connect(AdoptionSocket(directory));
  if (fd.ok()) close(*fd);
  return fd.ok() || absl::IsResourceExhausted(fd.status());
}

void SendSignal(int process, int signal) {
  syscall(SYS_pidfd_send_signal, process, signal, nullptr, 0);
}

bool AwaitProcessEnd(int process, Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      std::max(until - Clock::now(), Clock::duration(0)));
  pollfd ended = {process, POLLIN, 0};
  return poll(&ended, 1, static_cast<int>(left.count())) > 0;
}

}  // namespace detshare
