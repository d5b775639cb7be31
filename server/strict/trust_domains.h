// Strict isolation: programs of different users never share a process of the daemon, and so never
// share a context of a device.
//
//     socket --> this process: accepts, asks the kernel for the connection's user, opens no device
//                   |  connections, as descriptors (domain_channel.h)
//                   +--> process of user A: devices, scheduler, sessions
//                   +--> process of user B: ...
//
// A trust domain is a process of the same program. It starts at the first connection of its user.
// It ends some time after the last one, or when it fails; the next connection starts it again.
//
// Threading: one thread calls this object; the process may have others.
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
    // The command line of a domain's process. `--domain UID --domain-fd N --admission-fd N` are
    // appended.
    std::vector<std::string> command;
    std::string program;  // the executable; "": this process's own
    // The entry UID of this directory is removed when that user's domain has ended; "": none.
    std::string directory;
    int listen_fd = -1;          // the caller closes it
    SessionBook::Limits limits;  // over all processes
    // Called when a process has begun, and when it has ended; may be empty.
    std::function<void(uid_t user, pid_t process)> begun;
    std::function<void(uid_t user, pid_t process, DomainEnd how)> ended;
  };

  explicit TrustDomains(Options options);
  ~TrustDomains();  // kills the processes that End() has left
  TrustDomains(const TrustDomains&) = delete;
  TrustDomains& operator=(const TrustDomains&) = delete;

  // Readable when Proceed() has something to do.
  int fd() const { return epoll_; }
  // Does what is due. Does not block.
  void Proceed();
  void SetLimits(SessionBook::Limits limits) { book_.SetLimits(std::move(limits)); }
  // Sends `signal` to every domain's process.
  void Signal(int signal);
  // Accepts no more connections and tells the domains to end. Returns false if some are still there
  // after `timeout`.
  bool End(std::chrono::milliseconds timeout);

  size_t size() const { return domains_.size(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Domain {
    pid_t pid = -1;
    int process = -1;    // a pidfd of the process
    int channel = -1;    // -1: the process was told to end
    int admission = -1;  // where it asks about sessions (admission_channel.h)
    uint64_t sent = 0;
    bool full = false;        // the channel takes no more at the moment
    std::deque<int> waiting;  // connections that it, or its successor, takes later
    Clock::time_point begun;
  };
  using Domains = std::map<uid_t, Domain>;

  void Accept();
  absl::Status Begin(uid_t user, Domain* domain);
  // Gives the connection to the user's domain, which it starts if there is none, or closes it.
  void Pass(uid_t user, int connection);
  // Sends the waiting connections, as far as the domain reads.
  void Flush(uid_t user, Domain& domain);
  void HandleMessage(uid_t user, Domain& domain);
  // Decides the domain's requests about sessions.
  void Decide(Domain& domain);
  // The domain's process has ended.
  void Reap(Domains::iterator domain);
  void Notify(Domain& domain);

  const Options options_;
  int epoll_ = -1;
  bool ending_ = false;
  Domains domains_;
  SessionBook book_;
  std::map<uid_t, Clock::time_point> failed_;  // users whose domain ended soon after it had begun
};

}  // namespace detshare
