// The HTTP server with clients that speak correctly, incorrectly, slowly or not at all.
#include "server/web/http_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "server/base/logging.h"
#include "server/web/serve_pages.h"
#include "tests/server/test_windows.h"

namespace detshare {
namespace {

class Served {
 public:
  explicit Served(HttpServer::Options options = {}) {
    SetLogLevel(LogLevel::kError);
    ListenAddress address;
    address.path = path();
    const auto fd = ListenForHttp(address, 0600);
    REQUIRE(fd.ok());
    server_ = std::make_unique<HttpServer>(*fd, options, [this](const HttpRequest& request) {
      ++requests;
      if (request.path == "/large")
        return HttpResponse{200, "text/plain", std::string(8 << 20, 'x')};
      return HttpResponse{200, "text/plain",
                          std::string(request.path) + "|" + std::string(request.query)};
    });
  }
  std::string path() const { return directory_.path + "/http.sock"; }

  std::atomic<int> requests{0};

 private:
  TestDirectory directory_;
  std::unique_ptr<HttpServer> server_;
};

class Client {
 public:
  explicit Client(const Served& served) {
    fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, served.path().c_str(), sizeof(address.sun_path) - 1);
    connected = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Client() { close(fd_); }
  void Send(const std::string& text) {
    [[maybe_unused]] const ssize_t sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  void EndOfSending() { shutdown(fd_, SHUT_WR); }
  // Everything that comes until the server closes the connection. "TIMEOUT" if it does not close
  // it.
  std::string Rest() {
    std::string all;
    for (;;) {
      pollfd ready{fd_, POLLIN, 0};
      if (poll(&ready, 1, 20'000) != 1) return "TIMEOUT";
      char buffer[65536];
      const ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
      if (got <= 0) return all;
      all.append(buffer, static_cast<size_t>(got));
    }
  }
  std::string Ask(const std::string& text) {
    Send(text);
    return Rest();
  }

  bool connected = false;

 private:
  int fd_ = -1;
};

std::string Get(const std::string& target, const std::string& host = "localhost") {
  return "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n";
}

std::string StatusOf(const std::string& response) {
  return response.substr(0, response.find("\r\n"));
}
std::string BodyOf(const std::string& response) {
  const size_t end = response.find("\r\n\r\n");
  return end == std::string::npos ? "" : response.substr(end + 4);
}

TEST_CASE("A page has its length, and headers that forbid its use elsewhere") {
  Served served;
  const std::string response = Client(served).Ask(Get("/a?b=c"));
  CHECK(StatusOf(response) == "HTTP/1.1 200 OK");
  CHECK(BodyOf(response) == "/a|b=c");
  CHECK(response.find("Content-Length: 6\r\n") != std::string::npos);
  CHECK(response.find("Content-Security-Policy: default-src 'none'") != std::string::npos);
  CHECK(response.find("X-Content-Type-Options: nosniff") != std::string::npos);
  CHECK(response.find("Access-Control-Allow-Origin") == std::string::npos);
}

TEST_CASE("One connection can ask many times, and HEAD gives no body") {
  Served served;
  Client client(served);
  client.Send(
      "GET /1 HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD /22 HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string replies = client.Ask(Get("/333"));
  CHECK(replies.find("/1|HTTP/1.1 200") != std::string::npos);
  CHECK(replies.find("/22|") == std::string::npos);
  CHECK(replies.find("Content-Length: 4\r\n") != std::string::npos);
  CHECK(BodyOf(replies.substr(replies.rfind("HTTP/1.1"))) == "/333|");
}

TEST_CASE("Only GET and HEAD are accepted") {
  Served served;
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"}) {
    const std::string response = Client(served).Ask(
        std::string(method) + " / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    INFO(method);
    CHECK(StatusOf(response) == "HTTP/1.1 405 Method Not Allowed");
  }
  CHECK(served.requests == 0);
}

TEST_CASE("A request with a body is refused") {
  Served served;
  CHECK(StatusOf(Client(served).Ask(
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")) ==
        "HTTP/1.1 413 Payload Too Large");
  CHECK(served.requests == 0);
}

TEST_CASE("A page of a foreign domain does not reach the daemon through that domain's name") {
  Served served;
  for (const char* host :
       {"evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example:80"})
    CHECK(StatusOf(Client(served).Ask(Get("/", host))) == "HTTP/1.1 403 Forbidden");
  for (const char* host : {"localhost", "LOCALHOST:9464", "127.0.0.1:9464", "[::1]:9464", "[::1]"})
    CHECK(StatusOf(Client(served).Ask(Get("/", host))) == "HTTP/1.1 200 OK");
}

TEST_CASE("A request for another port is refused") {
  HttpServer::Options options;
  options.port = 9464;
  Served served(options);
  for (const char* host : {"localhost", "localhost:9465", "127.0.0.1:80", "[::1]", "[::1]:1",
                           "127.0.0.1:", "127.0.0.1:94640", "127.0.0.1:9464x", "[::1:9464", "::1"})
    CHECK(StatusOf(Client(served).Ask(Get("/", host))) == "HTTP/1.1 403 Forbidden");
  for (const char* host : {"localhost:9464", "127.0.0.1:9464", "[::1]:9464"})
    CHECK(StatusOf(Client(served).Ask(Get("/", host))) == "HTTP/1.1 200 OK");
}

TEST_CASE("Malformed requests get an error and are closed") {
  Served served;
  for (const std::string& text :
       {std::string("\r\n\r\n\r\n"), std::string("GET\r\n\r\n"),
        std::string("GET / HTTP/9.9\r\n\r\n"), std::string("GET / HTTP/1.1\r\nNo colon\r\n\r\n"),
        std::string("\x16\x03\x01\x02\0\x01\0\x01", 8) + "\r\n\r\n",
        std::string("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 29),
        std::string("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n")}) {
    Client client(served);
    client.Send(text);
    client.EndOfSending();
    const std::string response = client.Rest();
    INFO(text);
    INFO(response);
    CHECK((response.empty() || response.find("HTTP/1.1 4") == 0));
  }
  CHECK(served.requests == 0);
}

TEST_CASE("Headers beyond 8 KiB are refused") {
  Served served;
  const std::string response =
      Client(served).Ask("GET / HTTP/1.1\r\nX: " + std::string(20000, 'a'));
  CHECK(StatusOf(response) == "HTTP/1.1 431 Request Header Fields Too Large");
}

TEST_CASE("A client that sends slowly or nothing is disconnected") {
  HttpServer::Options options;
  options.timeout = std::chrono::milliseconds(100);
  Served served(options);
  Client silent(served), slow(served);
  slow.Send("GET / HT");
  CHECK(silent.Rest().empty());
  CHECK(slow.Rest().empty());
  CHECK(StatusOf(Client(served).Ask(Get("/"))) == "HTTP/1.1 200 OK");
}

TEST_CASE("A client that does not read its response is disconnected") {
  HttpServer::Options options;
  options.timeout = std::chrono::milliseconds(100);
  options.connections = 1;
  Served served(options);
  Client deaf(served);
  deaf.Send(Get("/large"));
  // Its place becomes free again.
  std::string response;
  while (response.empty()) response = Client(served).Ask(Get("/"));
  CHECK(StatusOf(response) == "HTTP/1.1 200 OK");
}

TEST_CASE(
    "Slow connections beyond the limit are closed, the slowest first, and others are served") {
  HttpServer::Options options;
  options.connections = 4;
  Served served(options);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<Client>(served));
    clients.back()->Send("GET / HTTP/1.1\r\n");
  }
  CHECK(StatusOf(Client(served).Ask(Get("/"))) == "HTTP/1.1 200 OK");
  for (int i = 0; i < 16; ++i) CHECK(clients[i]->Rest().empty());
  CHECK(StatusOf(clients[19]->Ask("Host: localhost\r\nConnection: close\r\n\r\n")) ==
        "HTTP/1.1 200 OK");
}

TEST_CASE("Random bytes do no harm") {
  Served served;
  std::mt19937 random(7);
  const std::string valid = Get("/x");
  for (int round = 0; round < 300; ++round) {
    std::string text = valid;
    const int changes = 1 + static_cast<int>(random() % 8);
    for (int i = 0; i < changes; ++i) text[random() % text.size()] = static_cast<char>(random());
    Client client(served);
    client.Send(text.substr(0, 1 + random() % text.size()));
    client.EndOfSending();
    const std::string response = client.Rest();
    INFO(text);
    CHECK((response.empty() || response.find("HTTP/1.1 ") == 0));
  }
  CHECK(StatusOf(Client(served).Ask(Get("/"))) == "HTTP/1.1 200 OK");
}

TEST_CASE("A dead socket is replaced, and a living one is not") {
  TestDirectory directory;
  ListenAddress address;
  address.path = directory.path + "/s";
  const auto first = ListenForHttp(address, 0640);
  REQUIRE(first.ok());
  struct stat status;
  REQUIRE(stat(address.path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0640);
  CHECK_FALSE(ListenForHttp(address, 0640).ok());
  close(*first);
  const auto second = ListenForHttp(address, 0640);
  CHECK(second.ok());
  close(*second);
}

TEST_CASE("The file of a unix socket ends with its server") {
  SetLogLevel(LogLevel::kError);
  TestDirectory directory;
  ListenAddress address;
  address.path = directory.path + "/s";
  {
    const auto server =
        ServePages({address, 0640, "", false}, [](const HttpRequest&) { return HttpResponse(); });
    REQUIRE(server.ok());
    CHECK(std::filesystem::exists(address.path));
  }
  CHECK_FALSE(std::filesystem::exists(address.path));
}

TEST_CASE("Addresses are numeric, and it is known which ones other machines reach") {
  for (const char* text :
       {"127.0.0.1:9464", "127.1.2.3:0", "[::1]:65535", "localhost:1", "/run/x.sock"}) {
    INFO(text);
    REQUIRE(ParseListenAddress(text).ok());
    CHECK_FALSE(IsExposed(*ParseListenAddress(text)));
  }
  for (const char* text :
       {"0.0.0.0:9464", "[::]:9464", "192.168.1.1:9464", "10.0.0.1:80", "[::ffff:127.0.0.1]:80"}) {
    INFO(text);
    REQUIRE(ParseListenAddress(text).ok());
    CHECK(IsExposed(*ParseListenAddress(text)));
  }
  for (const char* text :
       {"", ":9464", "9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
        "127.0.0.1:+1", "127.0.0.1: 1", "127.0.0.1:99999999999", "::1:80", "[::1]", "[::1:80",
        "example.org:80", "run/x.sock", "[127.0.0.1]:80", "127.1:80"}) {
    INFO(text);
    CHECK_FALSE(ParseListenAddress(text).ok());
  }
  CHECK_FALSE(ParseListenAddress("/" + std::string(107, 'x')).ok());
  CHECK(ParseListenAddress("/" + std::string(106, 'x')).ok());
  CHECK(ParseListenAddress("localhost:80")->host == "127.0.0.1");
}

// A server of pages at a unix socket whose requests need the token in `token_file`.
struct Guarded {
  Guarded() { Write("0123456789abcdef\n"); }
  void Write(const std::string& text) { std::ofstream(token_file) << text; }
  absl::StatusOr<std::unique_ptr<HttpServer>> Serve() const {
    ListenAddress address;
    address.path = directory.path + "/http.sock";
    return ServePages({address, 0600, token_file, false}, [](const HttpRequest&) {
      return HttpResponse{200, "text/plain", "page"};
    });
  }
  std::string Ask(const std::string& header) const {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (directory.path + "/http.sock").c_str(),
                 sizeof(address.sun_path) - 1);
    REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    const std::string request =
        "GET /metrics HTTP/1.1\r\nHost: 10.0.0.7:9464\r\n" + header + "Connection: close\r\n\r\n";
    [[maybe_unused]] const ssize_t sent = send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    std::string all;
    char buffer[4096];
    for (ssize_t got = 0; (got = recv(fd, buffer, sizeof(buffer), 0)) > 0;)
      all.append(buffer, static_cast<size_t>(got));
    close(fd);
    return all;
  }

  TestDirectory directory;
  const std::string token_file = directory.path + "/token";
};

TEST_CASE("Requests need the bearer token where there is one, and it can be replaced") {
  Guarded guarded;
  const auto server = guarded.Serve();
  REQUIRE(server.ok());
  CHECK(BodyOf(guarded.Ask("Authorization: Bearer 0123456789abcdef\r\n")) == "page");
  CHECK(BodyOf(guarded.Ask("authorization: bearer 0123456789abcdef\r\n")) == "page");
  for (const char* header :
       {"", "Authorization: \r\n", "Authorization: Bearer\r\n", "Authorization: Bearer \r\n",
        "Authorization: Bearer 0123456789abcde\r\n", "Authorization: Bearer 0123456789abcdeF\r\n",
        "Authorization: Bearer 0123456789abcdef0\r\n", "Authorization: Basic 0123456789abcdef\r\n",
        "Authorization: 0123456789abcdef\r\n"}) {
    INFO(header);
    const std::string response = guarded.Ask(header);
    CHECK(StatusOf(response) == "HTTP/1.1 401 Unauthorized");
    CHECK(response.find("WWW-Authenticate: Bearer") != std::string::npos);
  }
  guarded.Write("another-token-0123");
  CHECK(StatusOf(guarded.Ask("Authorization: Bearer 0123456789abcdef\r\n")) ==
        "HTTP/1.1 401 Unauthorized");
  CHECK(BodyOf(guarded.Ask("Authorization: Bearer another-token-0123\r\n")) == "page");
  // Without a token nobody is served.
  guarded.Write("");
  CHECK(StatusOf(guarded.Ask("Authorization: Bearer \r\n")) == "HTTP/1.1 401 Unauthorized");
  std::filesystem::remove(guarded.token_file);
  CHECK(StatusOf(guarded.Ask("Authorization: Bearer another-token-0123\r\n")) ==
        "HTTP/1.1 401 Unauthorized");
}

TEST_CASE("Without a usable token the pages are not served at all") {
  Guarded guarded;
  for (const std::string& text : {std::string(), std::string("too short"), std::string(5000, 'x'),
                                  std::string("with blanks between")}) {
    guarded.Write(text);
    CHECK(absl::IsFailedPrecondition(guarded.Serve().status()));
  }
  std::filesystem::remove(guarded.token_file);
  CHECK(absl::IsFailedPrecondition(guarded.Serve().status()));
}

}  // namespace
}  // namespace detshare
