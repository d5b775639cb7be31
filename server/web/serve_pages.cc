#include "server/web/serve_pages.h"

#include <utility>

#include "policy/status_macros.h"
#include "server/base/logging.h"

namespace detshare {

absl::StatusOr<std::unique_ptr<HttpServer>> ServePages(const ListenAddress& address, unsigned mode,
                                                       bool dashboard, HttpServer::Handler pages) {
  DETSHARE_ASSIGN_OR_RETURN(const int fd, ListenForHttp(address, mode));
  HttpServer::Options options;
  options.check_host = address.path.empty();
  options.port = HttpPort(fd);
  options.socket_file = address.path;
  LogInfo("metrics at ", HttpName(fd), "/metrics", dashboard ? ", dashboard at its root" : "");
  return std::make_unique<HttpServer>(fd, options, std::move(pages));
}

}  // namespace detshare
