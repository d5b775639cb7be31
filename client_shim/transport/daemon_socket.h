// Finds the daemon's socket and connects to it. Both shims use it.
#pragma once

#include <string>

namespace detshare::shim {

// The socket's path: DETSHARE_SOCKET, or else the path of the system's daemon.
std::string SocketPath();

// Returns a connected stream socket, non-blocking and close-on-exec, that already carries the
// preamble with the tenant that DETSHARE_TENANT names. Returns -1 with errno if no daemon listens
// there.
int ConnectToDaemon(const std::string& path);

}  // namespace detshare::shim
