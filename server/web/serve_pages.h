// Serves metrics and the dashboard over HTTP.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "policy/config/listen_address.h"
#include "server/web/http_server.h"

namespace detshare {

// Listens at `address`, serves what `pages` returns, and writes the address to the log. A unix
// socket gets `mode`, and its file is removed when the server ends. `dashboard`: the log also names
// the dashboard. Returns Unavailable if the address is in use or cannot be used.
absl::StatusOr<std::unique_ptr<HttpServer>> ServePages(const ListenAddress& address, unsigned mode,
                                                       bool dashboard, HttpServer::Handler pages);

}  // namespace detshare
