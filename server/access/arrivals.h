// Accepts connections and learns what each one is for: a client's connection begins with a preamble
// (proto/preamble.h), an operator's with HTTP/2's preface. Anything else is closed.
//
// A connection that has not said yet what it is for waits here. Nothing blocks on it. It is closed
// when it stays silent for too long, or when its holder, or all holders together, have too many such
// connections.
//
// One thread at a time uses this object.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "server/access/descriptor_share.h"
#include "server/access/peer_table.h"
#include "server/access/tenant_endpoint.h"

namespace detshare {

class Arrivals {
 public:
  // Owns `connection`, whose preamble was taken off. `wish` is the tenant that the client named, in
  // whatever bytes; nothing: an operator's connection.
  using Take = std::function<void(int connection, Peer peer, std::optional<std::string> wish)>;
  struct Limits {
    // Silent connections of one holder (ConnectionHolder). One more closes the oldest of them.
    size_t silent = 256;
    // Silent connections of all holders together. One more closes the oldest of them.
    size_t all_silent = ShareOfDescriptors(8, 1024);
    std::chrono::milliseconds timeout{10'000};
  };

  explicit Arrivals(Take take);
  Arrivals(Take take, Limits limits);
  ~Arrivals();  // closes the connections that wait here
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  // Accepts at a listening socket from now on. Does not close it. Peers have `endpoint`.
  void Listen(int listen_fd, std::shared_ptr<const TenantEndpoint> endpoint = nullptr);
  // Accepts no more at that socket, and closes what came there and still waits.
  void Leave(int listen_fd);

  // Readable when Proceed() has something to do.
  int fd() const { return epoll_; }
  // Does what is due. Calls `take` for each connection that has said what it is for. Does not
  // block.
  void Proceed();

 private:
  using Clock = std::chrono::steady_clock;
  struct Silent {
    int fd = -1;
    int listen_fd = -1;
    Peer peer;
    Clock::time_point until;
  };

  void Accept(int listen_fd);
  // Accepts nothing for a while: connections wait in the queues of their sockets.
  void Pause();
  // Accepts again, if the time has come.
  void Resume(Clock::time_point now);
  void Watch(int listen_fd, int operation, uint32_t events);
  // Looks at what a connection has sent. `over`: nothing more will come.
  void Look(uint64_t number, bool over);
  // Forgets the connection and returns its descriptor.
  int Release(std::map<uint64_t, Silent>::iterator silent);
  void Close(std::map<uint64_t, Silent>::iterator silent);
  void CloseLate(Clock::time_point now);
  void HandleTimer();
  void SetTimer();

  const Take take_;
  const Limits limits_;
  const int epoll_;
  const int timer_;
  std::map<int, std::shared_ptr<const TenantEndpoint>> sockets_;
  // By the order of their arrival, which is also that of `until`.
  std::map<uint64_t, Silent> silent_;
  std::map<ConnectionHolder, size_t> counts_;
  std::optional<Clock::time_point> resume_at_;  // has a value while it accepts nothing
  uint64_t next_ = 1;
};

}  // namespace detshare
