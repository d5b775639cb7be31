// What the machine's own management library (NVML) says of the devices, for those who must not or
// cannot ask it. Functions, result codes and the layout of answers are NVML's, passed through.
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
  int peer = -1;              // the other device, of functions about two
  absl::Span<const uint32_t> arguments;  // as many as the row says
};

struct HostResult {
  int result = 0;    // nvmlReturn_t
  std::string data;  // what the function wrote, one after the other; a text without its end
};

// Any thread. May take milliseconds: the library asks the card.
class HostTelemetry {
 public:
  virtual ~HostTelemetry() = default;
  virtual HostResult Ask(const HostQuestion& question) = 0;
};

// A reply of these values.
template <typename... Values>
HostResult Packed(int result, const Values&... values) {
  HostResult reply{result, {}};
  (reply.data.append(reinterpret_cast<const char*>(&values), sizeof(values)), ...);
  return reply;
}

}  // namespace detshare
