#include "server/access/acceptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/errno_text.h"
#include "server/base/logging.h"

namespace detshare {
namespace {

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

// Returns a number that the kernel never gives to another socket, or 0 if `fd` is not a socket.
uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t length = sizeof(cookie);
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) == 0 ? cookie : 0;
}

}  // namespace

void PeerTable::Add(int fd, Peer peer) {
  const uint64_t cookie = CookieOf(fd);
  const std::lock_guard<std::mutex> lock(mutex_);
  peer.connection = next_connection_++;
  peers_[fd] = {std::move(peer), cookie};
}

bool PeerTable::AnyConnected(pid_t except) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(peers_, [](const auto& entry) {
    const uint64_t cookie = CookieOf(entry.first);
    return cookie == 0 || cookie != entry.second.cookie;
  });
  return std::any_of(peers_.begin(), peers_.end(),
                     [&](const auto& entry) { return entry.second.peer.pid != except; });
}

std::optional<Peer> PeerTable::Find(const std::string& grpc_peer) const {
  int fd = -1;
  if (grpc_peer.rfind("fd:", 0) != 0 || !absl::SimpleAtoi(grpc_peer.substr(3), &fd))
    return std::nullopt;
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = peers_.find(fd);
  if (found == peers_.end()) return std::nullopt;
  return found->second.peer;
}

absl::Status LockSocket(const std::string& path) {
  const std::string lock_path = path + ".lock";
  const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock < 0)
    return absl::InternalError(absl::StrCat("cannot open ", lock_path, ": ", ErrnoText(errno)));
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    return absl::FailedPreconditionError(absl::StrCat("another detshared serves at ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> ListenOn(const std::string& path, mode_t mode) {
  const std::string made = path + ".new";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (made.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a socket's path has at most ",
                     sizeof(address.sun_path) - 1 - (made.size() - path.size()), " characters"));
  }
  struct stat there;
  if (lstat(path.c_str(), &there) == 0 && !S_ISSOCK(there.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on ", path, ": a file that is not a socket has this name"));
  }
  std::memcpy(address.sun_path, made.c_str(), made.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::InternalError(absl::StrCat("socket: ", ErrnoText(errno)));
  // A daemon that was killed may have left this socket.
  if (lstat(made.c_str(), &there) == 0 && S_ISSOCK(there.st_mode)) unlink(made.c_str());
  const bool bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  if (!bound || chmod(made.c_str(), mode) != 0 || listen(fd, 1024) != 0 ||
      rename(made.c_str(), path.c_str()) != 0) {
    const int error = errno;
    close(fd);
    if (bound) unlink(made.c_str());
    return absl::InternalError(
        absl::StrCat("cannot listen on ", bound ? path : made, ": ", ErrnoText(error)));
  }
  return fd;
}

Acceptor::Acceptor(int listen_fd, PeerTable& peers, std::function<void(int fd)> accepted,
                   std::shared_ptr<const TenantEndpoint> endpoint)
    : listen_fd_(listen_fd),
      peers_(peers),
      accepted_(std::move(accepted)),
      stop_fd_(eventfd(0, EFD_CLOEXEC)),
      endpoint_(std::move(endpoint)) {
  thread_ = std::thread([this] { Run(); });
}

Acceptor::~Acceptor() {
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(stop_fd_, &one, sizeof(one));
  thread_.join();
  close(stop_fd_);
}

void Acceptor::Run() {
  for (;;) {
    pollfd fds[2] = {{listen_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    if ((fds[0].revents & POLLIN) == 0) continue;
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      // If the process is out of descriptors, a connection that ends frees one.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        LogWarning("cannot accept a connection: ", ErrnoText(errno));
        poll(&fds[1], 1, 100);
      }
      continue;
    }
    Take(fd, /*passed=*/false);
  }
}

void Acceptor::Take(int fd, bool passed) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    close(fd);
    return;
  }
  peers_.Add(
      fd, {0, credentials.uid, credentials.gid, credentials.pid, GroupsOf(fd), endpoint_, passed});
  accepted_(fd);
}

}  // namespace detshare
