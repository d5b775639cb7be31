// The open connections, who is at their other ends, and how long they may stay without a session.
//
// gRPC names a connection "fd:<n>" (ServerContext::peer()). It keeps the descriptor open at least as
// long as a call on the connection lives, so the number identifies the caller's connection. gRPC
// reports no close: the table sees that the socket behind a number is another one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/mutex.h"
#include "server/access/descriptor_share.h"
#include "server/access/tenant_endpoint.h"

namespace detshare {

struct Peer {
  // PeerTable sets it and never uses a number twice.
  uint64_t connection = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;  // 0: the process has no id in the daemon's pid namespace.
  // The inode of the process's pid namespace; 0: this process may not know it.
  uint64_t pid_namespace = 0;
  std::vector<gid_t> groups;                       // supplementary groups
  std::shared_ptr<const TenantEndpoint> endpoint;  // null: came by the daemon's own socket
  // Another process accepted the connection, at the main socket, and decided about it.
  bool passed = false;
  std::string ticket;  // that process's word for `pid` (server/engines/client_ticket.h)
  // The tenant as which the peer opens sessions, or why it may not. It was decided when the
  // connection came.
  absl::StatusOr<std::string> tenant =
      absl::FailedPreconditionError("this connection is for operators: it opens no sessions");
  bool refused = false;  // The daemon does nothing for the peer but tell it why.
};

// Returns what the kernel says about the process at the other end of a unix socket; nothing if it
// says nothing. `endpoint`, `passed` and `tenant` are left as they are by default.
std::optional<Peer> ReadPeer(int fd);

// Whose connections count together: those behind a tenant endpoint, by its number, whatever users
// they have, because root in a container can become thousands of users; at the daemon's own socket,
// those of a user.
struct ConnectionHolder {
  bool endpoint = false;
  uint64_t number = 0;  // the endpoint's, or the user's

  auto operator<=>(const ConnectionHolder&) const = default;
};
ConnectionHolder HolderOf(const Peer& peer);

// Any thread may call it. A thread of its own drops the peers of connections that end, and ends
// connections that are not used.
class PeerTable {
 public:
  struct Limits {
    // Connections of one holder that have no session. A program has one while it opens its session,
    // and one for each question to NVML.
    size_t without_session = 128;
    // Such connections of all holders together.
    size_t all_without_session = ShareOfDescriptors(4, 2048);
    // How long a connection may have neither a session nor a call that begins.
    std::chrono::milliseconds unused{300'000};
    // The same for a connection whose peer is refused. It asks for the reason at once.
    std::chrono::milliseconds refused{10'000};
  };

  PeerTable() : PeerTable(Limits()) {}
  explicit PeerTable(const Limits& limits);
  ~PeerTable();
  PeerTable(PeerTable&) = delete;
  PeerTable& operator=(PeerTable&) = delete;

  // If the holder, or all holders together, have too many connections without a session, ends the
  // one of them that was unused for the longest time.
  void Add(int fd, Peer peer);
  // For a call that begins. Takes its ServerContext::peer(). Returns PermissionDenied if that is not
  // a connection of this table.
  absl::StatusOr<Peer> Find(const std::string& grpc_peer);
  // A connection has a session, which later ends. `connection` is Peer::connection.
  void SessionBegins(uint64_t connection);
  void SessionEnds(uint64_t connection);
  // Returns whether a process other than `except` is connected.
  bool AnyConnected(pid_t except);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    Peer peer;
    uint64_t cookie = 0;  // the socket's; the kernel never gives it to another socket
    int sessions = 0;
    Clock::time_point used;  // when it was accepted, a call began or its session ended
    bool ending = false;     // the client has closed the connection, and gRPC will
  };

  void Run();
  void MakeRoom(const Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops the peers of connections that gRPC has closed. Returns whether there were any.
  bool DropClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the connections that are not used. Returns when to look again.
  std::optional<Clock::time_point> EndUnused(Clock::time_point now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake();

  const Limits limits_;
  const int epoll_fd_, wake_fd_;
  Mutex mutex_;
  std::map<int, Entry> peers_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_connection_ ABSL_GUARDED_BY(mutex_) = 1;
  Clock::time_point say_again_ ABSL_GUARDED_BY(mutex_);  // when the next refusal may be logged
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace detshare
