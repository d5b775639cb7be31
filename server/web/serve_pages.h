// Serves metrics and the dashboard over HTTP.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "policy/config/listen_address.h"
#include "server/web/http_server.h"

namespace detshare {

struct ServedPages {
  ListenAddress address;
  unsigned mode = 0660;    // of a unix socket, whose file is removed when the server ends
  std::string token_file;  // with the bearer token that requests need (bearer_token.h); "": none
  bool dashboard = true;   // the log also names the dashboard
};

// Listens, serves what `pages` returns, and writes the address to the log. Returns Unavailable if the
// address is in use or cannot be used, and FailedPrecondition if the file has no token.
absl::StatusOr<std::unique_ptr<HttpServer>> ServePages(const ServedPages& served,
                                                       HttpServer::Handler pages);

}  // namespace detshare
