// A small HTTP/1.1 server for monitoring. It serves GET and HEAD, and nothing that changes
// anything.
//
// Clients may be hostile. So the number of connections, the size of a request and its time are
// bounded, and a malformed request gets an error and is closed. Requests whose Host is a foreign
// domain name are refused, because a web page must not reach the daemon through a name that its
// owner resolves to this machine. So are requests for another port, which were meant for another
// server.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
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
  std::string_view query;  // what follows the "?"
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  bool cacheable = false;
};

// Makes a listening socket; the caller owns it. A unix socket gets `mode` and replaces one on which
// no process listens.
absl::StatusOr<int> ListenForHttp(const ListenAddress& address, unsigned mode);

// Returns the socket's name: "http://127.0.0.1:9464", "unix:/run/x.sock".
std::string HttpName(int listen_fd);
// Returns the socket's port; 0 for a unix socket.
uint16_t HttpPort(int listen_fd);

class HttpServer {
 public:
  struct Options {
    // For each further connection, the one is closed whose request or reply has taken longest.
    size_t connections = 64;
    // From the first moment in which a request may come to its last byte; the same again for the
    // reply.
    std::chrono::milliseconds timeout{30'000};
    // Whether a request with this header Authorization ("" without one) is served; empty: all are.
    // Called on the server's only thread.
    std::function<bool(std::string_view authorization)> admits;
    bool check_host = true;   // a unix socket has no host to check
    uint16_t port = 0;        // that the host must name; 0: any
    std::string socket_file;  // removed when the server ends; empty: none
  };
  // Replies to a request. Called on the server's only thread.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Owns the listening socket. Serves until it is destroyed.
  HttpServer(int listen_fd, const Options& options, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace detshare
