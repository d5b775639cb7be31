// The daemon's socket: accepts connections, takes down who is at the other end, hands them to gRPC.
//
// gRPC names such a connection "fd:<n>" (ServerContext::peer()), and keeps the descriptor open at
// least as long as one of its calls lives: so the number tells whose call it is.
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
  uint64_t connection = 0;  // never used twice; PeerTable gives it
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;                     // 0 when it has none in the daemon's pid namespace
  std::vector<gid_t> groups;         // supplementary ones
  std::shared_ptr<const TenantEndpoint> endpoint;  // null: it came by the daemon's own socket
  bool passed = false;  // with strict isolation: another process accepted it, at the main socket
};

// The credentials of the open connections. Any thread.
class PeerTable {
 public:
  void Add(int fd, Peer peer);
  // Of a call's ServerContext::peer(). Nothing when that is no connection of ours.
  std::optional<Peer> Find(const std::string& grpc_peer) const;
  // Whether somebody is connected, other than process `except`. Forgets those who are not any more.
  bool AnyConnected(pid_t except);

 private:
  struct Entry {
    Peer peer;
    uint64_t cookie = 0;  // the socket's: gRPC closes it and tells nobody
  };

  mutable std::mutex mutex_;
  std::map<int, Entry> peers_;    // guarded by mutex_; overwritten when the number is used again
  uint64_t next_connection_ = 1;  // guarded by mutex_
};

// Takes the lock `<path>.lock`, until the process ends or executes another program.
// FailedPrecondition when another daemon serves there.
absl::Status LockSocket(const std::string& path);
// Makes the socket, replacing a dead one; with the lock. It has its name from when it listens on:
// nobody finds a socket there that refuses him. It is made as `<path>.new`.
absl::StatusOr<int> ListenOn(const std::string& path, mode_t mode);

// Accepts on a thread of its own.
class Acceptor {
 public:
  // `accepted` gets each connection, its credentials are in `peers` by then. Takes nothing of
  // `listen_fd` but its use. `endpoint`: whose socket it is; null: the daemon's own.
  Acceptor(int listen_fd, PeerTable& peers, std::function<void(int fd)> accepted,
           std::shared_ptr<const TenantEndpoint> endpoint = nullptr);
  ~Acceptor();  // accepts no more
  // A connection that was accepted by another process, at the main socket. Any thread.
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
