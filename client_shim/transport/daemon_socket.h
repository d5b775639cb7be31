// How the shims reach the daemon.
#pragma once

#include <string>

namespace detshare::shim {

// The socket's path: DETSHARE_SOCKET, else the system's daemon.
std::string SocketPath();

// A connected stream socket, non-blocking and closed on exec; -1 with errno when nobody listens
// there.
int ConnectToDaemon(const std::string& path);

}  // namespace detshare::shim
