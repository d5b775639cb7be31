#include "client_shim/transport/daemon_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "proto/preamble.h"

namespace detshare::shim {
namespace {

constexpr char kDefaultSocket[] = "/run/detshare/detshared.sock";

// The socket is new, so it has room. If the daemon is gone already, the first read fails.
void SendPreamble(int fd) {
  const char* tenant = getenv("DETSHARE_TENANT");
  const Preamble preamble = MakePreamble(tenant != nullptr ? tenant : "");
  [[maybe_unused]] const ssize_t sent = send(fd, &preamble, sizeof(preamble), MSG_NOSIGNAL);
}

}  // namespace

std::string SocketPath() {
  const char* path = getenv("DETSHARE_SOCKET");
  return path != nullptr && *path != '\0' ? path : kDefaultSocket;
}

int ConnectToDaemon(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  for (int attempt = 0;; ++attempt) {
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
      SendPreamble(fd);
      return fd;
    }
    // EAGAIN: the daemon's backlog is full.
    if (errno != EINTR && (errno != EAGAIN || attempt == 100)) break;
    const timespec nap{0, 10'000'000};
    nanosleep(&nap, nullptr);
  }
  const int saved = errno;
  close(fd);
  errno = saved;
  return -1;
}

}  // namespace detshare::shim
