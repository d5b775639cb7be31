#include "tools/kubernetes/dra/api_server.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/version.h"

namespace detshare::kubernetes {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace ssl = asio::ssl;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr char kAccountFiles[] = "/var/run/secrets/kubernetes.io/serviceaccount";
constexpr std::chrono::seconds kTimeout(10);
// How long a request that the server puts off is sent again. Kubelet waits for 45 seconds.
constexpr std::chrono::seconds kPutOff(15);
constexpr std::chrono::seconds kLongestWait(5);
constexpr size_t kMaxBody = 16 << 20;
constexpr size_t kMaxLine = 4 << 20;

constexpr char kJson[] = "application/json";
constexpr char kApply[] = "application/apply-patch+yaml";  // JSON is YAML

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return text.str();
}

// What the server says about a request that it refuses, which is an object of kind Status.
std::string MessageOf(int code, const Json& body) {
  std::string message = absl::StrCat("HTTP status ", code);
  if (body.is_object() && body.contains("message") && body["message"].is_string())
    absl::StrAppend(&message, ": ", body["message"].get<std::string>());
  return message;
}

absl::Status StatusOf(int code, const Json& body) {
  if (code >= 200 && code < 300) return absl::OkStatus();
  const std::string message = MessageOf(code, body);
  switch (code) {
    case 400:
    case 422:
      return absl::InvalidArgumentError(message);
    case 401:
      return absl::UnauthenticatedError(message);
    case 403:
      return absl::PermissionDeniedError(message);
    case 404:
      return absl::NotFoundError(message);
    case 409:
      return body.is_object() && body.value("reason", Json()) == "AlreadyExists"
                 ? absl::AlreadyExistsError(message)
                 : absl::AbortedError(message);
    case 410:
      return absl::OutOfRangeError(message);
    default:
      return code == 429 || code >= 500 ? absl::UnavailableError(message)
                                        : absl::UnknownError(message);
  }
}

using Request = http::request<http::string_body>;

absl::StatusOr<Request> MakeRequest(const ApiAccess& access, http::verb method,
                                    const std::string& path, const std::string& body,
                                    const char* content_type) {
  Request request(method, path, 11);
  const bool ipv6 = access.host.find(':') != std::string::npos;
  request.set(http::field::host, ipv6 ? absl::StrCat("[", access.host, "]:", access.port)
                                      : absl::StrCat(access.host, ":", access.port));
  request.set(http::field::user_agent, absl::StrCat("detshare-dra-driver/", kVersion));
  request.set(http::field::accept, kJson);
  request.keep_alive(false);
  if (!access.token_file.empty()) {
    absl::StatusOr<std::string> token = ReadFile(access.token_file);
    if (!token.ok()) return absl::UnavailableError(std::string(token.status().message()));
    absl::StripAsciiWhitespace(&*token);
    if (!std::all_of(token->begin(), token->end(),
                     [](unsigned char c) { return absl::ascii_isgraph(c); }))
      return absl::UnavailableError(absl::StrCat(access.token_file, " holds no token"));
    request.set(http::field::authorization, absl::StrCat("Bearer ", *token));
  }
  if (!body.empty()) {
    request.set(http::field::content_type, content_type);
    request.body() = body;
  }
  request.prepare_payload();
  return request;
}

}  // namespace

// A connection to the server. Its thread runs each operation to the end; Stop() ends the running one
// and all later ones.
class ApiConnection {
 public:
  absl::Status Open(const ApiAccess& access, const Request& request);
  // Reads the rest of the head of the response.
  absl::Status ReadHead();
  // Reads some more of the body. Ok with `done` when there is no more.
  absl::Status ReadBody(std::chrono::seconds timeout, bool* done);

  const http::response<http::string_body>& response() { return parser_->get(); }
  std::string& body() { return parser_->get().body(); }
  void Stop() {
    stopped_.store(true);
    io_.stop();
  }

 private:
  // Begins an operation with its handler, and waits until it is done.
  template <typename Begin>
  error_code Run(std::chrono::seconds timeout, Begin begin) {
    error_code result = asio::error::timed_out;
    begin([&result](error_code error, auto&&...) { result = error; });
    io_.restart();
    if (stopped_.load()) return asio::error::operation_aborted;
    io_.run_for(timeout);
    return stopped_.load() ? asio::error::operation_aborted : result;
  }
  template <typename Use>
  error_code WithStream(std::chrono::seconds timeout, Use use) {
    return tls_.has_value() ? Run(timeout, [&](auto done) { use(*tls_, std::move(done)); })
                            : Run(timeout, [&](auto done) { use(*socket_, std::move(done)); });
  }
  absl::Status Failed(const std::string& what, error_code error) const {
    if (stopped_.load()) return absl::CancelledError("stopped");
    return absl::UnavailableError(absl::StrCat(what, ": ", error.message()));
  }

  asio::io_context io_;
  std::atomic<bool> stopped_{false};
  std::optional<tcp::socket> socket_;
  std::optional<ssl::context> context_;
  std::optional<ssl::stream<tcp::socket&>> tls_;
  beast::flat_buffer buffer_{64 << 10};
  std::optional<http::response_parser<http::string_body>> parser_;
};

absl::Status ApiConnection::Open(const ApiAccess& access, const Request& request) {
  const std::string where = absl::StrCat("no connection to ", access.host, ":", access.port);
  error_code error;
  tcp::resolver resolver(io_);
  tcp::resolver::results_type addresses;
  error = Run(kTimeout, [&](auto done) {
    resolver.async_resolve(access.host, access.port,
                           [&addresses, done](error_code failed, auto found) mutable {
                             addresses = std::move(found);
                             done(failed);
                           });
  });
  if (error) return Failed(where, error);
  socket_.emplace(io_);
  error = Run(kTimeout, [&](auto done) { asio::async_connect(*socket_, addresses, done); });
  if (error) return Failed(where, error);
  if (access.scheme == "https") {
    context_.emplace(ssl::context::tls_client);
    context_->set_options(ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1, error);
    context_->load_verify_file(access.ca_file, error);
    if (error)
      return Failed(absl::StrCat("cannot use the certificates of ", access.ca_file), error);
    tls_.emplace(*socket_, *context_);
    tls_->set_verify_mode(ssl::verify_peer, error);
    tls_->set_verify_callback(ssl::host_name_verification(access.host), error);
    error_code no_address;
    asio::ip::make_address(access.host, no_address);
    if (no_address) SSL_set_tlsext_host_name(tls_->native_handle(), access.host.c_str());
    error =
        Run(kTimeout, [&](auto done) { tls_->async_handshake(ssl::stream_base::client, done); });
    if (error) return Failed(absl::StrCat(access.host, " is not trusted"), error);
  }
  error = WithStream(kTimeout, [&](auto& stream, auto done) {
    http::async_write(stream, request, std::move(done));
  });
  return error ? Failed(where, error) : absl::OkStatus();
}

absl::Status ApiConnection::ReadHead() {
  parser_.emplace();
  // The callers limit what they keep. Boost 1.74 takes boost::none for zero.
  parser_->body_limit(std::numeric_limits<uint64_t>::max());
  const error_code error = WithStream(kTimeout, [&](auto& stream, auto done) {
    http::async_read_header(stream, buffer_, *parser_, std::move(done));
  });
  return error ? Failed("no reply", error) : absl::OkStatus();
}

absl::Status ApiConnection::ReadBody(std::chrono::seconds timeout, bool* done) {
  *done = parser_->is_done();
  if (*done) return absl::OkStatus();
  const error_code error = WithStream(timeout, [&](auto& stream, auto finished) {
    http::async_read_some(stream, buffer_, *parser_, std::move(finished));
  });
  *done = parser_->is_done();
  return error && !*done ? Failed("the connection is lost", error) : absl::OkStatus();
}

absl::StatusOr<ApiAccess> AccessOfPod() {
  const char* const host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* const port = std::getenv("KUBERNETES_SERVICE_PORT");
  if (host == nullptr || port == nullptr || *host == '\0' || *port == '\0') {
    return absl::NotFoundError(
        "this is no pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set. Name the "
        "API server with --api-server, --token-file and --ca-file");
  }
  return ApiAccess{"https", host, port, absl::StrCat(kAccountFiles, "/token"),
                   absl::StrCat(kAccountFiles, "/ca.crt")};
}

absl::StatusOr<ApiAccess> ParseServer(const std::string& url) {
  ApiAccess access;
  absl::string_view rest = url;
  access.scheme = absl::ConsumePrefix(&rest, "https://")  ? "https"
                  : absl::ConsumePrefix(&rest, "http://") ? "http"
                                                          : "";
  absl::ConsumeSuffix(&rest, "/");
  const size_t colon = rest.rfind(':');
  uint32_t port = 0;
  if (access.scheme.empty() || colon == absl::string_view::npos ||
      !absl::SimpleAtoi(rest.substr(colon + 1), &port) || port == 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("the API server is https://HOST:PORT or http://HOST:PORT, not ", url));
  }
  access.port = std::to_string(port);
  absl::string_view host = rest.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  access.host = std::string(host);
  if (access.host.empty() || access.host.find('/') != std::string::npos)
    return absl::InvalidArgumentError(absl::StrCat("the API server's URL has no host: ", url));
  return access;
}

std::string Encode(absl::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '_' || c == '.' || c == '~') {
      out.push_back(c);
    } else {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

ApiServer::ApiServer(ApiAccess access) : access_(std::move(access)) {}

absl::StatusOr<Json> ApiServer::Get(const std::string& path) const {
  return Call("GET", path, Json(), kJson);
}
absl::StatusOr<Json> ApiServer::Post(const std::string& path, const Json& object) const {
  return Call("POST", path, object, kJson);
}
absl::StatusOr<Json> ApiServer::Put(const std::string& path, const Json& object) const {
  return Call("PUT", path, object, kJson);
}
absl::StatusOr<Json> ApiServer::Apply(const std::string& path, const Json& object) const {
  return Call("PATCH", path, object, kApply);
}
absl::Status ApiServer::Delete(const std::string& path, const Json& options) const {
  return Call("DELETE", path, options, kJson).status();
}

absl::StatusOr<Json> ApiServer::Call(absl::string_view method, const std::string& path,
                                     const Json& object, const char* content_type) const {
  const http::verb verb = http::string_to_verb({method.data(), method.size()});
  const std::string body =
      object.is_null() ? "" : object.dump(-1, ' ', false, Json::error_handler_t::replace);
  const Clock::time_point end = Clock::now() + kPutOff;
  for (;;) {
    const absl::StatusOr<Request> request = MakeRequest(access_, verb, path, body, content_type);
    if (!request.ok()) return request.status();
    ApiConnection connection;
    if (absl::Status opened = connection.Open(access_, *request); !opened.ok()) return opened;
    if (absl::Status read = connection.ReadHead(); !read.ok()) return read;
    for (bool done = false; !done;) {
      if (absl::Status read = connection.ReadBody(kTimeout, &done); !read.ok()) return read;
      if (connection.body().size() > kMaxBody)
        return absl::UnavailableError("the reply has more than 16 MiB");
    }
    const int code = static_cast<int>(connection.response().result_int());
    const auto after = connection.response().find(http::field::retry_after);
    if ((code == 429 || code == 503) && after != connection.response().end()) {
      int seconds = 0;
      const absl::string_view text(after->value().data(), after->value().size());
      if (!absl::SimpleAtoi(text, &seconds)) seconds = 1;
      const auto pause =
          std::clamp(std::chrono::seconds(seconds), std::chrono::seconds(0), kLongestWait);
      if (Clock::now() + pause < end) {
        std::this_thread::sleep_for(pause + std::chrono::milliseconds(100));
        continue;
      }
    }
    Json reply = Json::parse(connection.body(), nullptr, /*allow_exceptions=*/false);
    if (absl::Status failed = StatusOf(code, reply); !failed.ok()) return failed;
    if (!reply.is_object()) return absl::UnavailableError("the reply is no JSON object");
    return reply;
  }
}

WatchStream::WatchStream() : connection_(std::make_unique<ApiConnection>()) {}
WatchStream::~WatchStream() = default;

void WatchStream::Stop() { connection_->Stop(); }

absl::Status WatchStream::Open(const ApiAccess& access, const std::string& path) {
  const absl::StatusOr<Request> request = MakeRequest(access, http::verb::get, path, "", kJson);
  if (!request.ok()) return request.status();
  if (absl::Status opened = connection_->Open(access, *request); !opened.ok()) return opened;
  if (absl::Status read = connection_->ReadHead(); !read.ok()) return read;
  const int code = static_cast<int>(connection_->response().result_int());
  if (code == 200) return absl::OkStatus();
  for (bool done = false; !done && connection_->body().size() < kMaxLine;) {
    if (!connection_->ReadBody(kTimeout, &done).ok()) break;
  }
  return StatusOf(code, Json::parse(connection_->body(), nullptr, false));
}

absl::StatusOr<Json> WatchStream::Next(std::chrono::seconds silence) {
  std::string& body = connection_->body();
  for (;;) {
    const size_t end = body.find('\n');
    if (end != std::string::npos) {
      Json event = Json::parse(body.substr(0, end), nullptr, false);
      body.erase(0, end + 1);
      if (!event.is_object() || !event.contains("type") || !event["type"].is_string() ||
          !event.contains("object"))
        return absl::UnavailableError("the server sent what is no event");
      return event;
    }
    if (body.size() > kMaxLine) return absl::UnavailableError("an event has more than 4 MiB");
    bool done = false;
    if (absl::Status read = connection_->ReadBody(silence, &done); !read.ok()) return read;
    if (done && body.find('\n') == std::string::npos)
      return absl::OutOfRangeError("the server has ended the watch");
  }
}

}  // namespace detshare::kubernetes
