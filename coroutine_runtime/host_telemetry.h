// Data about the devices from the machine's management library (NVML), for clients that must not or
// cannot ask it. Functions, result codes and the layout of replies are NVML's, passed through.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace detshare {

struct HostQuestion {
  std::string_view function;  // a `host` row of proto/nvml/nvml.table
  int device = -1;            // position among the daemon's devices; -1: not about a device
  int peer = -1;              // the other device, for functions about two devices
  absl::Span<const uint32_t> arguments;  // as many as the row specifies
};

struct HostResult {
  int result = 0;    // nvmlReturn_t
  std::string data;  // the function's outputs, one after the other; a text has no terminator
};

// Threading: any thread. May take milliseconds, because the library asks the card.
class HostTelemetry {
 public:
  virtual ~HostTelemetry() = default;
  virtual HostResult Ask(const HostQuestion& question) = 0;
};

// Returns a reply with these values.
template <typename... Values>
HostResult Packed(int result, const Values&... values) {
  HostResult reply{result, {}};
  (reply.data.append(reinterpret_cast<const char*>(&values), sizeof(values)), ...);
  return reply;
}

}  // namespace detshare
