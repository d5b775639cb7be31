#include "server/access/peer_table.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/logging.h"

namespace detshare {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How often the table looks whether gRPC has closed a connection whose client is gone.
constexpr milliseconds kClosePeriod(50);
// How long it looks after a session has ended or a connection has come. If gRPC closes a connection
// at once, the epoll never reports its end.
constexpr milliseconds kCloseTime(1000);
// The time between two log lines about refused connections, because a program may try in a loop.
constexpr std::chrono::seconds kSilence(10);

// After a connection has ended, its memory goes back to the system if there is much. gRPC needs some
// time to clear calls away. Looking for free pages takes milliseconds.
constexpr std::chrono::seconds kTrimDelay(2), kTrimPeriod(10);
constexpr size_t kMuchMemory = size_t{64} << 20;

void ReturnMemory() {
  if (mallinfo2().fordblks >= kMuchMemory) malloc_trim(0);
}

// For epoll_wait().
int TimeoutUntil(std::optional<steady_clock::time_point> end, steady_clock::time_point now) {
  if (!end.has_value()) return -1;
  return static_cast<int>(
      std::max<int64_t>(0, duration_cast<milliseconds>(*end - now).count() + 1));
}

// Needs what a debugger needs to read the process, if it has another user.
uint64_t PidNamespaceOf(pid_t process) {
  struct stat status;
  if (stat(absl::StrCat("/proc/", process, "/ns/pid").c_str(), &status) != 0) return 0;
  return status.st_ino;
}

// Returns the groups that the process at the other end had when it connected. Returns no groups if
// the kernel does not tell them, which gives the peer fewer rights.
std::vector<gid_t> GroupsOf(int fd) {
  std::vector<gid_t> groups(64);
  for (;;) {
    socklen_t bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) == 0) {
      groups.resize(bytes / sizeof(gid_t));
      return groups;
    }
    // Linux gives a process at most 65536 groups.
    if (errno != ERANGE || bytes / sizeof(gid_t) > 65536) return {};
    groups.resize(bytes / sizeof(gid_t));
  }
}

// Returns 0 if `fd` is not a socket.
uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t length = sizeof(cookie);
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) == 0 ? cookie : 0;
}

// Ends the connection at `fd` if it is still the one with that cookie. gRPC may close the number at
// any time, so this looks at a copy.
void Disconnect(int fd, uint64_t cookie) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return;
  if (CookieOf(copy) == cookie) shutdown(copy, SHUT_RDWR);
  close(copy);
}

}  // namespace

std::optional<Peer> ReadPeer(int fd) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return std::nullopt;
  Peer peer;
  peer.uid = credentials.uid;
  peer.gid = credentials.gid;
  peer.pid = credentials.pid;
  peer.pid_namespace = PidNamespaceOf(peer.pid);
  peer.groups = GroupsOf(fd);
  return peer;
}

ConnectionHolder HolderOf(const Peer& peer) {
  if (peer.endpoint != nullptr) return {true, peer.endpoint->number};
  return {false, peer.uid};
}

PeerTable::PeerTable(const Limits& limits)
    : limits_(limits), epoll_fd_(epoll_create1(EPOLL_CLOEXEC)), wake_fd_(eventfd(0, EFD_CLOEXEC)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake_fd_;
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event);
  thread_ = std::thread([this] { Run(); });
}

PeerTable::~PeerTable() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
  close(epoll_fd_);
  close(wake_fd_);
}

void PeerTable::Add(int fd, Peer peer) {
  const uint64_t cookie = CookieOf(fd);
  {
    const MutexLock lock(&mutex_);
    MakeRoom(peer);
    peer.connection = next_connection_++;
    peers_[fd] = {std::move(peer), cookie, 0, Clock::now(), false};
  }
  // Edge-triggered, because the end of the client is reported until gRPC closes the connection.
  epoll_event event{};
  event.events = EPOLLRDHUP | EPOLLET;
  event.data.fd = fd;
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event);
  Wake();
}

void PeerTable::MakeRoom(const Peer& peer) {
  struct Counted {
    size_t count = 0;
    std::pair<const int, Entry>* oldest = nullptr;
  };
  const ConnectionHolder holder = HolderOf(peer);
  Counted own, all;
  for (auto& entry : peers_) {
    const Entry& one = entry.second;
    if (one.sessions != 0 || one.ending) continue;
    for (Counted* const counted : {&own, &all}) {
      if (counted == &own && HolderOf(one.peer) != holder) continue;
      ++counted->count;
      if (counted->oldest == nullptr || one.used < counted->oldest->second.used)
        counted->oldest = &entry;
    }
  }
  const bool full = own.count >= limits_.without_session;
  if (!full && all.count < limits_.all_without_session) return;
  auto& [fd, oldest] = full ? *own.oldest : *all.oldest;
  oldest.ending = true;
  Disconnect(fd, oldest.cookie);
  if (Clock::now() < say_again_) return;
  say_again_ = Clock::now() + kSilence;
  std::string who = "the daemon";
  if (full)
    who = holder.endpoint ? "endpoint " + peer.endpoint->name : absl::StrCat("uid ", peer.uid);
  LogWarning(who, " has ", full ? own.count : all.count,
             " connections without a session: for each further one, the daemon ends the one that "
             "was unused for the longest time");
}

absl::StatusOr<Peer> PeerTable::Find(const std::string& grpc_peer) {
  const absl::Status unknown = absl::PermissionDeniedError("not a local connection");
  int fd = -1;
  if (grpc_peer.rfind("fd:", 0) != 0 || !absl::SimpleAtoi(grpc_peer.substr(3), &fd)) return unknown;
  const MutexLock lock(&mutex_);
  const auto found = peers_.find(fd);
  if (found == peers_.end() || CookieOf(fd) != found->second.cookie) return unknown;
  found->second.used = Clock::now();
  return found->second.peer;
}

void PeerTable::SessionBegins(uint64_t connection) {
  const MutexLock lock(&mutex_);
  for (auto& [fd, entry] : peers_) {
    if (entry.peer.connection == connection) ++entry.sessions;
  }
}

void PeerTable::SessionEnds(uint64_t connection) {
  const MutexLock lock(&mutex_);
  for (auto& [fd, entry] : peers_) {
    if (entry.peer.connection != connection) continue;
    --entry.sessions;
    entry.used = Clock::now();
  }
  Wake();
}

bool PeerTable::AnyConnected(pid_t except) {
  const MutexLock lock(&mutex_);
  DropClosed();
  return std::any_of(peers_.begin(), peers_.end(),
                     [&](const auto& entry) { return entry.second.peer.pid != except; });
}

bool PeerTable::DropClosed() {
  return std::erase_if(peers_, [](const auto& entry) {
           return CookieOf(entry.first) != entry.second.cookie;
         }) != 0;
}

std::optional<PeerTable::Clock::time_point> PeerTable::EndUnused(Clock::time_point now) {
  std::optional<Clock::time_point> next;
  for (auto& [fd, entry] : peers_) {
    if (entry.sessions != 0 || entry.ending) continue;
    const Clock::time_point end =
        entry.used + (entry.peer.refused ? limits_.refused : limits_.unused);
    if (end <= now) {
      Disconnect(fd, entry.cookie);
      entry.ending = true;
    } else {
      next = std::min(next.value_or(end), end);
    }
  }
  return next;
}

void PeerTable::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

void PeerTable::Run() {
  pthread_setname_np(pthread_self(), "peers");
  std::optional<Clock::time_point> trim_at;
  Clock::time_point last_trim, look_until;
  MutexLock lock(&mutex_);
  while (!stopping_) {
    const Clock::time_point now = Clock::now();
    std::optional<Clock::time_point> next = EndUnused(now);
    const bool ending = std::any_of(peers_.begin(), peers_.end(),
                                    [](const auto& entry) { return entry.second.ending; });
    const bool look = ending || now < look_until;
    if (look) next = std::min(next.value_or(now + kClosePeriod), now + kClosePeriod);
    if (trim_at.has_value()) next = std::min(next.value_or(*trim_at), *trim_at);
    lock.Unlock();
    if (trim_at.has_value() && *trim_at <= now) {
      ReturnMemory();
      trim_at.reset();
      last_trim = now;
    }
    constexpr int kEvents = 64;
    epoll_event events[kEvents];
    const int count = epoll_wait(epoll_fd_, events, kEvents, TimeoutUntil(next, now));
    lock.Lock();
    for (int i = 0; i < count; ++i) {
      if (events[i].data.fd == wake_fd_) {
        uint64_t wakes;
        [[maybe_unused]] const ssize_t bytes = read(wake_fd_, &wakes, sizeof(wakes));
        look_until = Clock::now() + kCloseTime;
      } else if (const auto found = peers_.find(events[i].data.fd); found != peers_.end()) {
        found->second.ending = true;
      }
    }
    if ((look || count > 0) && DropClosed() && !trim_at.has_value())
      trim_at = std::max(Clock::now() + kTrimDelay, last_trim + kTrimPeriod);
  }
}

}  // namespace detshare
