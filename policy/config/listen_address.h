// The address at which the daemon serves HTTP: a numeric address with a port, or a unix socket.
// Nothing here opens a socket.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace detshare {

struct ListenAddress {
  std::string path;  // of a unix socket; "": `host` and `port` hold
  std::string host;  // a numeric address, without brackets
  bool ipv6 = false;
  uint16_t port = 0;  // 0: any free port
};

inline constexpr absl::string_view kListenAddressForms =
    "a numeric address with a port (\"127.0.0.1:9464\", \"[::1]:9464\", \"localhost:9464\"), or "
    "the "
    "absolute path of a unix socket";

// Takes kListenAddressForms; InvalidArgument for other texts. No name but "localhost" is known, and
// none is looked up.
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text);

// Whether other machines may reach the address: it is neither a loopback address nor a unix socket.
bool IsExposed(const ListenAddress& address);

}  // namespace detshare
