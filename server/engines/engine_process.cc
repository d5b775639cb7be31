#include "server/engines/engine_process.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "server/base/errno_text.h"
#include "server/base/logging.h"

namespace detshare {
namespace {

constexpr char kFolder[] = "engines";
// How often an engine that the supervisor has released looks whether a program still uses it.
constexpr std::chrono::milliseconds kReleasedPeriod(100);

absl::StatusOr<int> ListenForSupervisors(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return absl::InvalidArgumentError(absl::StrCat("the path ", path, " is too long for a socket"));
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  unlink(path.c_str());
  // Nobody can connect before listen().
  if (fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      chmod(path.c_str(), 0600) == 0 && listen(fd, 4) == 0)
    return fd;
  const int error = errno;
  if (fd >= 0) close(fd);
  return absl::UnavailableError(absl::StrCat("cannot listen at ", path, ": ", ErrnoText(error)));
}

void Watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

std::string EnginesDirectory(const std::string& runtime_directory) {
  return absl::StrCat(runtime_directory, "/", kFolder);
}

std::string SharedDirectory(const std::string& runtime_directory) {
  return absl::StrCat(EnginesDirectory(runtime_directory), "/", kSharedByEngines);
}
uint64_t NumberOfDaemon(const std::string& runtime_directory) {
  struct stat found {};
  if (stat(EnginesDirectory(runtime_directory).c_str(), &found) != 0) return 0;
  return found.st_dev * 0x9e3779b97f4a7c15 + found.st_ino;  // the golden ratio spreads the devices
}
std::string EngineDirectory(const std::string& runtime_directory, const std::string& name) {
  return absl::StrCat(EnginesDirectory(runtime_directory), "/", name);
}

std::string EngineDirectoryForClients(const std::string& name) {
  return absl::StrCat(kFolder, "/", name, "/");
}

std::string EngineSocket(const std::string& engine_directory) {
  return engine_directory + "/detshared.sock";
}

std::string AdoptionSocket(const std::string& engine_directory) {
  return engine_directory + "/adopt.sock";
}

absl::StatusOr<std::unique_ptr<EngineMember>> EngineMember::Create(int channel, int page,
                                                                   const std::string& directory,
                                                                   std::chrono::milliseconds idle) {
  DETSHARE_ASSIGN_OR_RETURN(const int listen_fd, ListenForSupervisors(AdoptionSocket(directory)));
  std::unique_ptr<EngineMember> member(
      new EngineMember(epoll_create1(EPOLL_CLOEXEC), listen_fd, page, idle));
  member->Adopt(channel);
  return member;
}

EngineMember::EngineMember(int epoll, int listen_fd, int page, std::chrono::milliseconds idle)
    : epoll_(epoll), listen_fd_(listen_fd), page_(page), idle_(idle) {
  Watch(epoll_, listen_fd_);
}

EngineMember::~EngineMember() {
  Leave();
  close(listen_fd_);
  close(epoll_);
}

void EngineMember::Adopt(int channel) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(channel, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) peer.pid = -1;
  Watch(epoll_, channel);
  {
    const MutexLock lock(&mutex_);
    channel_ = channel;
  }
  supervisor_.store(peer.pid, std::memory_order_relaxed);
  released_ = false;
  received_ = 0;
  if (const absl::Status reported = ReportPage(channel, page_); !reported.ok()) {
    LogWarning("the supervisor gives this engine no programs: ", std::string(reported.message()));
  }
  const MutexLock lock(&mutex_);
  ReportEndedWork();
}

void EngineMember::AcceptSupervisors() {
  for (;;) {
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    ucred peer{};
    socklen_t size = sizeof(peer);
    const bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    if (!known || (peer.uid != geteuid() && peer.uid != 0)) {
      close(fd);
      continue;
    }
    Leave();
    Adopt(fd);
    LogInfo("the supervisor is pid ", peer.pid, " from now on");
  }
}

void EngineMember::Leave() {
  const MutexLock lock(&mutex_);
  if (channel_ < 0) return;
  close(channel_);  // closing removes it from the epoll
  channel_ = -1;
  supervisor_.store(-1, std::memory_order_relaxed);
}

void EngineMember::AwaitPeers(const std::function<void(const Received&)>& take,
                              std::chrono::milliseconds max) {
  const Clock::time_point until = Clock::now() + max;
  for (bool told = false; !told && Clock::now() < until;) {
    if (EndsEarly()) return;
    if (TakeEarly(take, &told)) continue;
    pollfd readable{channel_, POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    poll(&readable, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
  }
}

void EngineMember::TakePeers(const std::function<void(const Received&)>& take, int stop) {
  for (pollfd fds[2] = {{stop, POLLIN, 0}, {channel_, POLLIN, 0}}; fds[0].revents == 0;) {
    bool told = false;
    while (!EndsEarly() && TakeEarly(take, &told)) {
    }
    poll(fds, EndsEarly() ? 1 : 2, -1);
  }
}

bool EngineMember::TakeEarly(const std::function<void(const Received&)>& take, bool* told) {
  Received received = TakeMessage(channel_);
  if (received.peer.has_value() || received.peers.has_value()) {
    take(received);
    *told = received.peers.has_value();
    return true;
  }
  if (!received.any && !received.end) return false;
  early_.push_back(std::move(received));
  return true;
}

std::optional<Assignment> EngineMember::TakeAssignment() {
  std::optional<Assignment> assignment;
  bool reloads = false;
  std::erase_if(early_, [&](const Received& received) {
    if (received.assignment.has_value()) {
      assignment = received.assignment;
      return true;
    }
    const bool again = received.order == EngineOrder::kReload && std::exchange(reloads, true);
    return again || received.look_for_room || received.closed_endpoint.has_value();
  });
  return assignment;
}

std::optional<Assignment> EngineMember::AwaitAssignment(
    const std::function<void(const Received&)>& take, int stop) {
  const auto must_end = [](const Received& received) {
    return received.end || received.order == EngineOrder::kEnd ||
           received.order == EngineOrder::kRelease;
  };
  for (;;) {
    if (std::any_of(early_.begin(), early_.end(), must_end)) return std::nullopt;
    if (std::optional<Assignment> assignment = TakeAssignment(); assignment.has_value())
      return assignment;
    bool told = false;
    if (TakeEarly(take, &told)) continue;
    pollfd fds[2] = {{stop, POLLIN, 0}, {channel_, POLLIN, 0}};
    poll(fds, 2, -1);
    if (fds[0].revents != 0) return std::nullopt;
  }
}

Received EngineMember::TakeNext() {
  if (early_.empty()) return TakeMessage(channel_);
  Received received = std::move(early_.front());
  early_.pop_front();
  return received;
}

bool EngineMember::Proceed(const std::function<void(const Received&)>& take,
                           const std::function<bool()>& in_use) {
  // The messages of the supervisor that is gone come first.
  for (bool again = true; again;) {
    while (channel_ >= 0) {
      const Received received = TakeNext();
      if (received.end) {
        Leave();
        if (!released_) LogWarning("the supervisor has ended; the sessions go on");
        break;
      }
      if (!received.any) break;
      if (received.order == EngineOrder::kEnd) return false;
      if (received.order == EngineOrder::kRelease) released_ = true;
      if (received.connection.has_value()) {
        ++received_;
        idle_since_ = Clock::now();
      }
      take(received);
    }
    const int before = channel_;
    AcceptSupervisors();
    again = channel_ != before;
  }
  if (in_use()) {
    idle_since_ = Clock::now();
    return true;
  }
  if (released_) return false;
  if (Clock::now() - idle_since_ < idle_) return true;
  idle_since_ = Clock::now();
  if (channel_ < 0) return false;
  OfferToEnd(channel_, received_);
  return true;
}

int EngineMember::timeout() const {
  if (!early_.empty()) return 0;
  if (released_) return static_cast<int>(kReleasedPeriod.count());
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(idle_since_ + idle_ - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count() + 1, 1, 1000));
}

void EngineMember::Report(const DaemonEvent& event) const {
  const MutexLock lock(&mutex_);
  if (channel_ >= 0) ReportEvent(channel_, event);
}

void EngineMember::Report(EndedWork ended_work) {
  const MutexLock lock(&mutex_);
  ended_work_ = ended_work;
  if (channel_ >= 0) ReportEndedWork();
}

void EngineMember::ReportEndedWork() const {
  if (ended_work_ == EndedWork::kOutlived) {
    ReportRetirement(channel_);
  } else {
    ReportMayRetire(channel_, ended_work_ == EndedWork::kRuns);
  }
}

bool EngineMember::ReportUse(uint64_t endpoint, const EndpointUse::Figures& figures) const {
  const MutexLock lock(&mutex_);
  return channel_ >= 0 && detshare::ReportUse(channel_, endpoint, figures).ok();
}

void EngineMember::ReportWantsRoom() const {
  const MutexLock lock(&mutex_);
  if (channel_ >= 0) detshare::ReportWantsRoom(channel_);
}

void EngineMember::ReportLoss() const {
  const MutexLock lock(&mutex_);
  if (channel_ >= 0) ReportDeviceLoss(channel_);
}

}  // namespace detshare
