#include "server/access/acceptor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "policy/config/config.h"
#include "server/access/arrivals.h"
#include "server/base/errno_text.h"
#include "server/base/lock_file.h"

namespace detshare {

absl::Status LockSocket(const std::string& path) {
  const absl::StatusOr<int> lock = LockFile(path + ".lock");
  if (absl::IsFailedPrecondition(lock.status()))
    return absl::FailedPreconditionError(absl::StrCat("another detshared serves at ", path));
  if (!lock.ok()) {
    return absl::InternalError(absl::StrCat(std::string(lock.status().message()),
                                            ": the socket's directory must exist, and this user "
                                            "must be able to write there; name another socket "
                                            "with --socket"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> ListenOn(const std::string& path, mode_t mode) {
  constexpr absl::string_view kNew = ".new";
  const std::string made = absl::StrCat(path, kNew);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  static_assert(kMaxSocketPath + kNew.size() + 1 == sizeof(address.sun_path));
  if (path.size() > kMaxSocketPath) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a socket's path has at most ", kMaxSocketPath, " characters"));
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

Acceptor::Acceptor(int listen_fd, PeerTable& peers, const Identity& identity,
                   std::function<void(int fd)> accepted,
                   std::shared_ptr<const TenantEndpoint> endpoint)
    : peers_(peers),
      identity_(identity),
      accepted_(std::move(accepted)),
      stop_fd_(eventfd(0, EFD_CLOEXEC)) {
  thread_ =
      std::thread([this, listen_fd, endpoint = std::move(endpoint)] { Run(listen_fd, endpoint); });
}

Acceptor::~Acceptor() {
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(stop_fd_, &one, sizeof(one));
  thread_.join();
  close(stop_fd_);
}

void Acceptor::Run(int listen_fd, std::shared_ptr<const TenantEndpoint> endpoint) {
  Arrivals arrivals([this](int fd, Peer peer, const std::optional<std::string>& wish) {
    if (wish.has_value()) peer.tenant = identity_.TenantName(*wish, peer);
    // Behind an endpoint there are no services for operators.
    peer.refused = !peer.tenant.ok() && (wish.has_value() || peer.endpoint != nullptr);
    peers_.Add(fd, std::move(peer));
    accepted_(fd);
  });
  arrivals.Listen(listen_fd, std::move(endpoint));
  for (;;) {
    pollfd fds[2] = {{arrivals.fd(), POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    arrivals.Proceed();
  }
}

}  // namespace detshare
