// The socket at which a client gets the descriptor of its managed memory
// (server/session/managed_ranges.h).
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdio>

namespace detshare {

// Its name in the session's directory. It keeps message boundaries (SOCK_SEQPACKET).
inline constexpr char kManagedSocket[] = "managed";

// The socket's address by a descriptor of the directory, because paths of sockets are short.
class ManagedSocketAddress {
 public:
  explicit ManagedSocketAddress(int directory) {
    address_.sun_family = AF_UNIX;
    snprintf(address_.sun_path, sizeof(address_.sun_path), "/proc/self/fd/%d/%s", directory,
             kManagedSocket);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t size() const { return sizeof(address_); }

 private:
  sockaddr_un address_{};
};

}  // namespace detshare
