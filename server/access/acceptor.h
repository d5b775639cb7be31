// The daemon's sockets: takes the lock of a socket, listens, accepts connections, records the
// credentials of the process at the other end, and hands the connections to gRPC.
//
// gRPC names such a connection "fd:<n>" (ServerContext::peer()). It keeps the descriptor open at
// least as long as a call on the connection lives, so the number identifies the caller's
// connection.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/tenant_endpoint.h"

namespace detshare {

struct Peer {
  // PeerTable sets it and never uses a number twice.
  uint64_t connection = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;              // 0: the process has no id in the daemon's pid namespace.
  std::vector<gid_t> groups;  // supplementary groups
  std::shared_ptr<const TenantEndpoint> endpoint;  // null: came by the daemon's own socket
  // With strict isolation: another process accepted the connection, at the main socket.
  bool passed = false;
};

// The credentials of the open connections. Any thread may call it.
class PeerTable {
 public:
  void Add(int fd, Peer peer);
  // Takes a call's ServerContext::peer(). Returns nothing if that is not a connection of this
  // table.
  std::optional<Peer> Find(const std::string& grpc_peer) const;
  // Returns whether a process other than `except` is connected. Forgets connections that have
  // ended.
  bool AnyConnected(pid_t except);

 private:
  struct Entry {
    Peer peer;
    // The socket's cookie. It tells that gRPC has closed the descriptor, because gRPC reports no
    // close.
    uint64_t cookie = 0;
  };

  mutable std::mutex mutex_;
  // Guarded by mutex_; an entry stays until its number is used again or AnyConnected() drops it.
  std::map<int, Entry> peers_;
  uint64_t next_connection_ = 1;  // guarded by mutex_
};

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
  // Does not close `listen_fd`. Calls `accepted` for each connection after its credentials are in
  // `peers`; `accepted` owns the descriptor. `endpoint` is the tenant endpoint that `listen_fd`
  // belongs to; null stands for the daemon's own socket.
  Acceptor(int listen_fd, PeerTable& peers, std::function<void(int fd)> accepted,
           std::shared_ptr<const TenantEndpoint> endpoint = nullptr);
  ~Acceptor();  // stops accepting
  // Takes a connection that another process accepted at the main socket. Any thread may call it.
  void Take(int fd) { Take(fd, /*passed=*/true); }
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

 private:
  void Run();
  void Take(int fd, bool passed);

  const int listen_fd_;
  PeerTable& peers_;
  const std::function<void(int fd)> accepted_;
  int stop_fd_ = -1;
  const std::shared_ptr<const TenantEndpoint> endpoint_;
  std::thread thread_;
};

}  // namespace detshare
