#include "server/web/serve_pages.h"

#include <string_view>
#include <utility>

#include "policy/status_macros.h"
#include "server/base/logging.h"
#include "server/web/bearer_token.h"

namespace detshare {

absl::StatusOr<std::unique_ptr<HttpServer>> ServePages(const ServedPages& served,
                                                       HttpServer::Handler pages) {
  HttpServer::Options options;
  // No page of another server has the token, so the host needs no check then.
  options.check_host = served.address.path.empty() && served.token_file.empty();
  if (!served.token_file.empty()) {
    const auto token = std::make_shared<const BearerToken>(served.token_file);
    DETSHARE_RETURN_IF_ERROR(token->Check());
    options.admits = [token](std::string_view authorization) {
      return token->Admits(authorization);
    };
  }
  DETSHARE_ASSIGN_OR_RETURN(const int fd, ListenForHttp(served.address, served.mode));
  options.port = HttpPort(fd);
  options.socket_file = served.address.path;
  LogInfo("metrics at ", HttpName(fd), "/metrics",
          served.dashboard ? ", dashboard at its root" : "",
          served.token_file.empty() ? "" : ", for requests with the bearer token");
  return std::make_unique<HttpServer>(fd, options, std::move(pages));
}

}  // namespace detshare
