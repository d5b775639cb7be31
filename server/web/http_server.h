// A small HTTP/1.1 server for those who look: GET and HEAD, nothing that changes anything.
//
// Whoever connects may be hostile: the number of connections, the size of a request and the time
// that it may take are bounded, whatever is malformed is answered and closed, and requests whose
// Host is a name of somebody's domain are refused (a web page must not reach the daemon through a
// name that it resolves to this machine).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/config/listen_address.h"

namespace detshare {

struct HttpRequest {
  std::string_view path;   // "/metrics", as it was sent
  std::string_view query;  // behind the "?"
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  bool cacheable = false;
};

// Makes the socket. A unix socket has `mode`, and replaces one to which nobody listens any more.
absl::StatusOr<int> ListenForHttp(const ListenAddress& address, unsigned mode);

// What such a socket is called: "http://127.0.0.1:9464", "unix:/run/x.sock".
std::string HttpName(int listen_fd);

class HttpServer {
 public:
  struct Options {
    size_t connections = 64;  // further ones are closed at once
    // From the first moment in which a request may come to its last byte; and for a reply.
    std::chrono::milliseconds timeout{30'000};
    bool check_host = true;  // a unix socket has none
  };
  // On the server's one thread.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Takes over the listening socket. Serves until it is destroyed.
  HttpServer(int listen_fd, const Options& options, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace detshare
