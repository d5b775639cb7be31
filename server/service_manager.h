// What a service manager and the daemon tell each other: systemd's protocols sd_notify(3), which
// are datagrams of VARIABLE=value lines, and sd_listen_fds(3), which are descriptors from 3 on.
// Spoken here and not by libsystemd, so that the same program runs where that does not exist.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace detshare {

// A socket that listens already.
struct PassedSocket {
  int fd = -1;
  std::string path;  // that it is bound to
};

// Any thread. Messages that cannot be sent are lost: the service manager misses them in time.
class ServiceManager {
 public:
  // By NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. They stay in the environment: a process that
  // executes itself anew is the same service.
  static ServiceManager FromEnvironment();
  // Says everything to the socket at `address` (its path, or @ and an abstract name); "" for
  // nobody.
  explicit ServiceManager(std::string address, std::chrono::microseconds watchdog = {});

  void Ready() const { Send("READY=1"); }
  void Reloading() const;
  void Stopping() const { Send("STOPPING=1"); }
  void Alive() const { Send("WATCHDOG=1"); }
  // One line for people: what the service does now.
  void Say(std::string_view status) const;

  // Alive() must be called at least this often; 0: nobody waits for it.
  std::chrono::microseconds watchdog() const { return watchdog_; }

 private:
  void Send(std::string_view message) const;

  const std::string address_;
  const std::chrono::microseconds watchdog_;
};

// The socket that LISTEN_PID and LISTEN_FDS hand to this process, from now on closed when another
// program is executed; nothing when they hand none. InvalidArgument for several, or for one that is
// no listening unix socket with a path.
absl::StatusOr<std::optional<PassedSocket>> TakePassedSocket();

}  // namespace detshare
