// One call of the daemon's Telemetry service, with nothing left behind.
//
// By hand and not by gRPC: a program that asks NVML may fork at any moment (PyTorch asks it so that
// it may), and gRPC's threads do not survive that. A call connects, sends one request and reads one
// answer, in the caller's thread, so the daemon sees who asks by SO_PEERCRED in a child of fork,
// too. What is spoken is what gRPC speaks: HTTP/2 with one stream.
#pragma once

#include <chrono>
#include <string>

namespace detshare::nvml {

enum class CallResult {
  kOk,
  kNoDaemon,      // nobody listens there
  kNoPermission,  // to connect
  kTimeout,
  kBroken,  // refused, or no reply that can be understood
};

// Calls `method` ("/package.Service/Method") with a serialized request of at most 16,000 bytes. Any
// thread.
CallResult CallDaemon(const std::string& socket_path, const std::string& method,
                      const std::string& request, std::chrono::milliseconds timeout,
                      std::string* reply);

}  // namespace detshare::nvml
