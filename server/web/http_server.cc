#include "server/web/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/errno_text.h"
#include "server/base/logging.h"

namespace detshare {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr uint32_t kMaxHeaderBytes = 8192;
constexpr size_t kMaxBufferBytes = 16384;
constexpr std::chrono::milliseconds kAcceptPause(100);

// A page may load only from this server, send nothing, and be embedded in no other page.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// Returns whether the host is an IP address or localhost, with the port. No owner of a domain can make
// these lead to this machine.
bool IsOwnHost(std::string_view host, uint16_t port) {
  if (host.empty()) return true;  // HTTP/1.0
  const size_t colon = host.find(':', host.front() == '[' ? host.find(']') : 0);
  constexpr uint16_t kHttpPort = 80;
  uint32_t named = kHttpPort;
  if (colon != host.npos) {
    const std::string_view digits = host.substr(colon + 1);
    if (!absl::SimpleAtoi(absl::string_view(digits.data(), digits.size()), &named)) return false;
    host = host.substr(0, colon);
  }
  if (port != 0 && named != port) return false;
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const std::string name = absl::AsciiStrToLower(absl::string_view(host.data(), host.size()));
  in_addr v4;
  in6_addr v6;
  return name == "localhost" || inet_pton(AF_INET, name.c_str(), &v4) == 1 ||
         inet_pton(AF_INET6, name.c_str(), &v6) == 1;
}

}  // namespace

absl::StatusOr<int> ListenForHttp(const ListenAddress& address, unsigned mode) {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  std::string name = address.path;
  if (!address.path.empty()) {
    auto* const to = reinterpret_cast<sockaddr_un*>(&storage);
    to->sun_family = AF_UNIX;
    std::memcpy(to->sun_path, address.path.c_str(), address.path.size() + 1);
    bytes = sizeof(*to);
  } else if (address.ipv6) {
    auto* const to = reinterpret_cast<sockaddr_in6*>(&storage);
    to->sin6_family = AF_INET6;
    to->sin6_port = htons(address.port);
    inet_pton(AF_INET6, address.host.c_str(), &to->sin6_addr);
    bytes = sizeof(*to);
    name = absl::StrCat("[", address.host, "]:", address.port);
  } else {
    auto* const to = reinterpret_cast<sockaddr_in*>(&storage);
    to->sin_family = AF_INET;
    to->sin_port = htons(address.port);
    inet_pton(AF_INET, address.host.c_str(), &to->sin_addr);
    bytes = sizeof(*to);
    name = absl::StrCat(address.host, ":", address.port);
  }
  const auto fail = [&name] {
    return absl::UnavailableError(absl::StrCat("cannot listen at ", name, ": ", ErrnoText(errno)));
  };
  const int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return fail();
  const auto* const to = reinterpret_cast<const sockaddr*>(&storage);
  if (address.path.empty()) {
    const int one = 1;  // a daemon that replaces itself comes back at once
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  } else {
    // A socket that accepts belongs to another process. A socket that refuses is left over.
    const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct stat there;
    const bool dead = connect(probe, to, bytes) != 0 && errno == ECONNREFUSED &&
                      lstat(address.path.c_str(), &there) == 0 && S_ISSOCK(there.st_mode);
    close(probe);
    if (dead) unlink(address.path.c_str());
  }
  // The mode is set before any client can connect.
  const bool bound = bind(fd, to, bytes) == 0;
  const bool usable = bound && (address.path.empty() || chmod(address.path.c_str(), mode) == 0);
  if (!usable || listen(fd, 64) != 0) {
    absl::Status failed = fail();
    if (bound && !address.path.empty()) unlink(address.path.c_str());
    close(fd);
    return failed;
  }
  return fd;
}

std::string HttpName(int listen_fd) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof(name);
  if (getsockname(listen_fd, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return "";
  char text[INET6_ADDRSTRLEN] = {};
  if (name.ss_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&name);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
    return absl::StrCat("http://", text, ":", ntohs(v4->sin_port));
  }
  if (name.ss_family == AF_INET6) {
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&name);
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
    return absl::StrCat("http://[", text, "]:", ntohs(v6->sin6_port));
  }
  return absl::StrCat("unix:", reinterpret_cast<const sockaddr_un*>(&name)->sun_path);
}

uint16_t HttpPort(int listen_fd) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof(name);
  if (getsockname(listen_fd, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return 0;
  if (name.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in*>(&name)->sin_port);
  if (name.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&name)->sin6_port);
  return 0;
}

struct HttpServer::Impl {
  class Connection;

  Impl(int listen_fd, const Options& options, Handler handler)
      : options(options), handler(std::move(handler)), io(1), listener(io), pause(io) {
    error_code ignored;
    listener.assign(listen_fd, ignored);
  }

  void Run();
  void Accept();
  void Take();

  const Options options;
  const Handler handler;
  // In the order in which their present requests and replies began. Used by the thread only.
  std::list<Connection*> connections;
  asio::io_context io;
  asio::posix::stream_descriptor listener;
  asio::steady_timer pause;
  std::thread thread;
};

// The handlers of its pending operations keep it alive.
class HttpServer::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl& server, asio::generic::stream_protocol::socket socket)
      : server_(server), stream_(std::move(socket)), buffer_(kMaxBufferBytes) {
    place_ = server_.connections.insert(server_.connections.end(), this);
  }
  ~Connection() { server_.connections.erase(place_); }

  void Read() {
    Begin();
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(0);
    http::async_read(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code error, size_t) { self->OnRead(error); });
  }

  // Its pending operation fails, which ends it.
  void Close() { stream_.close(); }

 private:
  // A request or a reply begins.
  void Begin() {
    server_.connections.splice(server_.connections.end(), server_.connections, place_);
    stream_.expires_after(server_.options.timeout);
  }

  void OnRead(error_code error) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow)
      return Write({431, "text/plain; charset=utf-8", "too many headers\n"}, false);
    if (error == http::error::body_limit)
      return Write({413, "text/plain; charset=utf-8", "requests with a body are not accepted\n"},
                   false);
    // Errors of Beast's HTTP category mean that the request is malformed; others that the
    // connection failed.
    if (error && error.category() == http::make_error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message)
      return Write({400, "text/plain; charset=utf-8", "malformed\n"}, false);
    if (error) return;
    Write(Respond(parser_->get()), parser_->get().keep_alive());
  }

  HttpResponse Respond(const http::request<http::empty_body>& request) {
    const auto view = [](beast::string_view text) {
      return std::string_view(text.data(), text.size());
    };
    if (request.method() != http::verb::get && request.method() != http::verb::head)
      return {405, "text/plain; charset=utf-8", "only GET and HEAD\n"};
    if (server_.options.check_host &&
        !IsOwnHost(view(request[http::field::host]), server_.options.port)) {
      return {403, "text/plain; charset=utf-8",
              "the Host of a request must be localhost or an IP address, and the daemon's port: "
              "forward the same port number\n"};
    }
    if (server_.options.admits &&
        !server_.options.admits(view(request[http::field::authorization])))
      return {401, "text/plain; charset=utf-8", "the request needs the daemon's bearer token\n"};
    HttpRequest asked;
    const std::string_view target = view(request.target());
    asked.path = target.substr(0, target.find('?'));
    if (asked.path.size() < target.size()) asked.query = target.substr(asked.path.size() + 1);
    return server_.handler(asked);
  }

  void Write(HttpResponse response, bool keep_alive) {
    const bool head = parser_->is_header_done() && parser_->get().method() == http::verb::head;
    response_ = {};
    response_.version(11);
    response_.result(static_cast<unsigned>(response.status));
    response_.set(http::field::content_type, response.type);
    response_.set(http::field::cache_control, response.cacheable ? "no-cache" : "no-store");
    response_.set("Content-Security-Policy", kPolicy);
    response_.set("X-Content-Type-Options", "nosniff");
    response_.set("Referrer-Policy", "no-referrer");
    response_.set("Cross-Origin-Resource-Policy", "same-origin");
    if (response.status == 405) response_.set(http::field::allow, "GET, HEAD");
    if (response.status == 401)
      response_.set(http::field::www_authenticate, "Bearer realm=\"detshared\"");
    response_.keep_alive(keep_alive);
    response_.content_length(response.body.size());
    if (!head) response_.body() = std::move(response.body);
    Begin();
    serializer_.emplace(response_);
    const auto written = [self = shared_from_this(), keep_alive](error_code error, size_t) {
      if (!error && keep_alive) return self->Read();
      error_code ignored;
      self->stream_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
    };
    if (head) {
      http::async_write_header(stream_, *serializer_, written);
    } else {
      http::async_write(stream_, *serializer_, written);
    }
  }

  Impl& server_;
  std::list<Connection*>::iterator place_;
  beast::basic_stream<asio::generic::stream_protocol> stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
};

void HttpServer::Impl::Accept() {
  listener.async_wait(asio::posix::stream_descriptor::wait_read, [this](error_code error) {
    if (!error) Take();
  });
}

void HttpServer::Impl::Take() {
  const int fd = accept4(listener.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
    // There is no descriptor left to accept with: waits, so that this thread does not spin.
    pause.expires_after(kAcceptPause);
    pause.async_wait([this](error_code error) {
      if (!error) Accept();
    });
    return;
  }
  if (fd >= 0) {
    sockaddr_storage name{};
    socklen_t bytes = sizeof(name);
    [[maybe_unused]] const int named = getsockname(fd, reinterpret_cast<sockaddr*>(&name), &bytes);
    asio::generic::stream_protocol::socket socket(io);
    error_code error;
    socket.assign(asio::generic::stream_protocol(name.ss_family, 0), fd, error);
    if (error) {
      close(fd);
    } else {
      if (connections.size() >= options.connections) connections.front()->Close();
      std::make_shared<Connection>(*this, std::move(socket))->Read();
    }
  }
  Accept();
}

void HttpServer::Impl::Run() {
  pthread_setname_np(pthread_self(), "http");
  Accept();
  for (;;) {
    // An exception while a request is handled ends only that connection.
    try {
      io.run();
      return;
    } catch (const std::exception& error) {
      LogWarning("a request for metrics failed: ", error.what());
    }
  }
}

HttpServer::HttpServer(int listen_fd, const Options& options, Handler handler)
    : impl_(std::make_unique<Impl>(listen_fd, options, std::move(handler))) {
  impl_->thread = std::thread([this] { impl_->Run(); });
}

HttpServer::~HttpServer() {
  if (!impl_->options.socket_file.empty()) unlink(impl_->options.socket_file.c_str());
  impl_->io.stop();
  impl_->thread.join();
}

}  // namespace detshare
