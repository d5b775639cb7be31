// The daemon's sockets: takes the lock of a socket, listens, accepts connections, and hands them to
// gRPC with what the daemon knows about the process at the other end.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/identity.h"
#include "server/access/peer_table.h"
#include "server/access/tenant_endpoint.h"

namespace detshare {

// Takes the lock `<path>.lock`. The process holds it until it ends or executes another program.
// Returns FailedPrecondition if another daemon serves there.
absl::Status LockSocket(const std::string& path);
// Makes a listening socket at `path` with permissions `mode` and replaces a socket that a dead
// daemon left. The caller makes sure that no other daemon uses `path`, by LockSocket() or because
// only this daemon can write there. It owns the returned descriptor. The socket is made as
// `<path>.new` and renamed into place once it listens, so no client finds one that refuses.
absl::StatusOr<int> ListenOn(const std::string& path, mode_t mode);

// Accepts connections on a thread of its own.
class Acceptor {
 public:
  // Does not close `listen_fd`. Decides the tenant of each client by `identity`. Calls `accepted`
  // for each connection after its peer is in `peers`; `accepted` owns the descriptor. `endpoint` is
  // the tenant endpoint that `listen_fd` belongs to; null stands for the daemon's own socket.
  Acceptor(int listen_fd, PeerTable& peers, const Identity& identity,
           std::function<void(int fd)> accepted,
           std::shared_ptr<const TenantEndpoint> endpoint = nullptr);
  ~Acceptor();  // stops accepting
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

 private:
  void Run(int listen_fd, std::shared_ptr<const TenantEndpoint> endpoint);

  PeerTable& peers_;
  const Identity& identity_;
  const std::function<void(int fd)> accepted_;
  int stop_fd_ = -1;
  std::thread thread_;
};

}  // namespace detshare
