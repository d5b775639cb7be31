// Makes one call of the daemon's Telemetry service and leaves nothing behind.
//
// This code does not use gRPC. A program that uses NVML may fork at any moment, and gRPC's threads
// do not survive that. PyTorch uses NVML just so that it can fork later. A call connects, sends one
// request and reads one reply, all in the caller's thread. So the daemon sees the right process by
// SO_PEERCRED, even in a child of fork. The call uses gRPC's protocol: HTTP/2 with one stream.
#pragma once

#include <chrono>
#include <string>

namespace detshare::nvml {

enum class CallResult {
  kOk,
  kNoDaemon,      // no daemon listens there
  kNoPermission,  // no permission to connect
  kTimeout,
  kBroken,  // refused, or a reply that cannot be understood
};

// Calls `method` ("/package.Service/Method") with a serialized request of at most 16,000 bytes.
// Waits up to `timeout`. Any thread.
CallResult CallDaemon(const std::string& socket_path, const std::string& method,
                      const std::string& request, std::chrono::milliseconds timeout,
                      std::string* reply);

}  // namespace detshare::nvml
