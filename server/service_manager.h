// Speaks systemd's protocols with the service manager: sd_notify(3), datagrams of VARIABLE=value
// lines, and sd_listen_fds(3), descriptors from 3 on. It does not use libsystemd, so that the same
// program runs where that library does not exist.
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
  std::string path;  // the path that it is bound to
};

// Tells the service manager about the daemon's state. A message that cannot be sent is lost; the
// service manager notices its absence in time. Any thread may call it.
class ServiceManager {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. The variables stay in the environment,
  // because a process that executes itself again is the same service.
  static ServiceManager FromEnvironment();
  // Sends to the socket at `address` (a path, or @ and an abstract name); "": to nothing.
  explicit ServiceManager(std::string address, std::chrono::microseconds watchdog = {});

  void Ready() const { Send("READY=1"); }
  void Reloading() const;
  void Stopping() const { Send("STOPPING=1"); }
  void Alive() const { Send("WATCHDOG=1"); }
  // Describes the service's state in one line for people.
  void Say(std::string_view status) const;

  // Alive() must be called at least this often; 0: there is no watchdog.
  std::chrono::microseconds watchdog() const { return watchdog_; }

 private:
  void Send(std::string_view message) const;

  const std::string address_;
  const std::chrono::microseconds watchdog_;
};

// Returns the socket that LISTEN_PID and LISTEN_FDS pass to this process, and marks it
// close-on-exec; nothing if they pass none. Returns InvalidArgument for several sockets, or for one
// that is not a listening unix socket with a path.
absl::StatusOr<std::optional<PassedSocket>> TakePassedSocket();

}  // namespace detshare
