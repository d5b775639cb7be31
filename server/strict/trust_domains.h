// Strict isolation: programs of different users never share a process of the daemon, and so never a
// context of a device.
//
//     socket --> this process: accepts, asks the kernel whose the connection is, opens no device
//                   |  connections, as descriptors (domain_channel.h)
//                   +--> process of user A: devices, scheduler, sessions
//                   +--> process of user B: ...
//
// A domain is a process of the same program, begun at the first connection of its user, and ended
// some time after the last one, or when it fails; then the next connection begins it anew.
//
// Threading: one thread, which may be one of several.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/strict/domain_process.h"
#include "server/strict/session_book.h"

namespace detshare {

class TrustDomains {
 public:
  struct Options {
    // Of a domain's process; its user and descriptor are added: `--domain UID --domain-fd N`.
    std::vector<std::string> command;
    std::string program;         // what is executed; "": this one
    std::string directory;       // whose entry UID is removed when that domain has ended; "": none
    int listen_fd = -1;          // stays the caller's
    SessionBook::Limits limits;  // of all processes together
    // Told when a process has begun, and when it has ended; may be empty.
    std::function<void(uid_t user, pid_t process)> begun;
    std::function<void(uid_t user, pid_t process, DomainEnd how)> ended;
  };

  explicit TrustDomains(Options options);
  ~TrustDomains();  // kills what End() has left
  TrustDomains(const TrustDomains&) = delete;
  TrustDomains& operator=(const TrustDomains&) = delete;

  // Readable when there is something to do ...
  int fd() const { return epoll_; }
  // ... by this. Does not block.
  void Proceed();
  void SetLimits(SessionBook::Limits limits) { book_.SetLimits(std::move(limits)); }
  // To every domain.
  void Signal(int signal);
  // No connection is accepted any more, and domains end. False when some are still there after
  // `timeout`.
  bool End(std::chrono::milliseconds timeout);

  size_t size() const { return domains_.size(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Domain {
    pid_t pid = -1;
    int process = -1;    // a descriptor of it
    int channel = -1;    // -1: it is told to end
    int admission = -1;  // where it asks about sessions (admission_channel.h)
    uint64_t sent = 0;
    bool full = false;        // the channel takes no more at the moment
    std::deque<int> waiting;  // connections that it, or its successor, takes later
    Clock::time_point begun;
  };
  using Domains = std::map<uid_t, Domain>;

  void Accept();
  absl::Status Begin(uid_t user, Domain* domain);
  // Gives the connection to the domain, which may be new, or closes it.
  void Pass(uid_t user, int connection);
  // Passes on what waits, as far as the domain reads.
  void Flush(uid_t user, Domain& domain);
  void HandleMessage(uid_t user, Domain& domain);
  // About sessions.
  void Decide(Domain& domain);
  // Its process has ended.
  void Reap(Domains::iterator domain);
  void Notify(Domain& domain);

  const Options options_;
  int epoll_ = -1;
  bool ending_ = false;
  Domains domains_;
  SessionBook book_;
  std::map<uid_t, Clock::time_point> failed_;  // whose domain ended as soon as it had begun
};

}  // namespace detshare
