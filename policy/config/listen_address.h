// Where the daemon listens for HTTP: an address that only this machine reaches, or a unix socket.
//
// Pure: nothing here opens a socket.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace detshare {

struct ListenAddress {
  std::string path;  // of a unix socket; "": the address below
  std::string host;  // a loopback address in numbers, without brackets
  bool ipv6 = false;
  uint16_t port = 0;  // 0: any that is free
};

inline constexpr absl::string_view kListenAddressForms =
    "a loopback address with a port (\"127.0.0.1:9464\", \"[::1]:9464\", \"localhost:9464\"), or "
    "the "
    "absolute path of a unix socket";

// InvalidArgument for everything that is none of these. Names are not looked up.
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text);

}  // namespace detshare
