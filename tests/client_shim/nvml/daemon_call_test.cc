// Malformed replies of a daemon. nvml_test.cc tests a real daemon's replies end to end.
#include "client_shim/nvml/daemon_call.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

namespace detshare::nvml {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTimeout(60'000);

// Accepts one connection and does what the test says with it.
class FalseDaemon {
 public:
  explicit FalseDaemon(std::function<void(int fd)> serve) {
    char pattern[] = "/dev/shm/detshare-call-XXXXXX";
    directory_ = mkdtemp(pattern);
    listen_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket().c_str(), sizeof(address.sun_path) - 1);
    REQUIRE(bind(listen_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(listen_, 1) == 0);
    thread_ = std::thread([this, serve] {
      const int fd = accept(listen_, nullptr, nullptr);
      serve(fd);
      close(fd);
    });
  }
  ~FalseDaemon() {
    thread_.join();
    close(listen_);
    std::filesystem::remove_all(directory_);
  }
  std::string socket() const { return directory_ + "/s"; }

 private:
  std::string directory_;
  int listen_ = -1;
  std::thread thread_;
};

std::string Frame(uint32_t length, int type, int flags, int stream, const std::string& payload) {
  std::string frame;
  for (int shift = 16; shift >= 0; shift -= 8) frame.push_back(static_cast<char>(length >> shift));
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  frame += std::string("\0\0\0", 3);
  frame.push_back(static_cast<char>(stream));
  return frame + payload;
}
std::string Frame(int type, int flags, int stream, const std::string& payload) {
  return Frame(static_cast<uint32_t>(payload.size()), type, flags, stream, payload);
}

std::string Message(const std::string& text) {
  return std::string("\0\0\0\0", 4) + static_cast<char>(text.size()) + text;
}

constexpr int kData = 0, kHeaders = 1, kResetStream = 3, kSettings = 4, kPing = 6, kGoAway = 7;
constexpr int kEndStream = 1, kEndHeaders = 4;

// The result of a call that gets these bytes as its reply.
CallResult ResultOf(const std::string& bytes_sent, std::string* reply) {
  const FalseDaemon daemon([&bytes_sent](int fd) {
    char request[4096];
    REQUIRE(read(fd, request, sizeof(request)) > 0);
    (void)!write(fd, bytes_sent.data(), bytes_sent.size());
    // Runs until the client closes the connection.
    shutdown(fd, SHUT_WR);
    while (read(fd, request, sizeof(request)) > 0) {
    }
  });
  return CallDaemon(daemon.socket(), "/a.B/C", "request", kTimeout, reply);
}
CallResult ResultOf(const std::string& bytes_sent) {
  std::string reply;
  return ResultOf(bytes_sent, &reply);
}

TEST_CASE("A reply is a message and the end of its stream, whatever comes between") {
  std::string reply;
  const std::string message = Message("hello");
  CHECK(ResultOf(Frame(kSettings, 0, 0, "") + Frame(kHeaders, kEndHeaders, 1, "x") +
                     Frame(kPing, 0, 0, "12345678") + Frame(kData, 0, 1, message.substr(0, 3)) +
                     Frame(kData, 0, 1, message.substr(3)) + Frame(99, 255, 3, "unknown") +
                     Frame(kHeaders, kEndHeaders | kEndStream, 1, "trailers"),
                 &reply) == CallResult::kOk);
  CHECK(reply == "hello");
  CHECK(ResultOf(Frame(kData, kEndStream, 1, Message("")), &reply) == CallResult::kOk);
  CHECK(reply.empty());
}

TEST_CASE("A failed call has an end and no message") {
  CHECK(ResultOf(Frame(kHeaders, kEndHeaders | kEndStream, 1, "grpc-status: 12")) ==
        CallResult::kBroken);
  CHECK(ResultOf(Frame(kResetStream, 0, 1, std::string(4, '\0'))) == CallResult::kBroken);
  CHECK(ResultOf(Frame(kGoAway, 0, 0, std::string(8, '\0'))) == CallResult::kBroken);
}

TEST_CASE("Malformed bytes are no reply") {
  CHECK(ResultOf("") == CallResult::kBroken);
  CHECK(ResultOf("HTTP/1.1 400 Bad Request\r\n\r\n") == CallResult::kBroken);
  CHECK(ResultOf(std::string(100'000, '\xFF')) == CallResult::kBroken);
  // A frame that is larger than allowed, and a frame that is shorter than its length.
  CHECK(ResultOf(Frame(16385, kData, 0, 1, "")) == CallResult::kBroken);
  CHECK(ResultOf(Frame(100, kData, kEndStream, 1, "short")) == CallResult::kBroken);
  // Data of another stream, and padded data.
  CHECK(ResultOf(Frame(kData, kEndStream, 3, Message("a"))) == CallResult::kBroken);
  CHECK(ResultOf(Frame(kData, kEndStream | 8, 1, Message("a"))) == CallResult::kBroken);
  // A message that is longer or shorter than its length, and a compressed message.
  CHECK(ResultOf(Frame(kData, kEndStream, 1, Message("a") + "b")) == CallResult::kBroken);
  CHECK(ResultOf(Frame(kData, kEndStream, 1, std::string("\0\xFF\xFF\xFF\xFF", 5) + "a")) ==
        CallResult::kBroken);
  CHECK(ResultOf(Frame(kData, kEndStream, 1, std::string("\1\0\0\0\1", 5) + "a")) ==
        CallResult::kBroken);
  CHECK(ResultOf(Frame(kData, kEndStream, 1, std::string("\0\0", 2))) == CallResult::kBroken);
}

TEST_CASE("An endless message is cut off") {
  std::string flood;
  for (int i = 0; i < 400; ++i) flood += Frame(kData, 0, 1, std::string(16384, 'x'));
  CHECK(ResultOf(flood) == CallResult::kBroken);
}

TEST_CASE("A daemon that accepts and says nothing is a timeout") {
  const FalseDaemon daemon([](int fd) {
    char byte;
    while (read(fd, &byte, 1) > 0) {
    }
  });
  std::string reply;
  CHECK(CallDaemon(daemon.socket(), "/a.B/C", "request", milliseconds(50), &reply) ==
        CallResult::kTimeout);
}

TEST_CASE(
    "A missing daemon, a missing permission and a request that is too long have different "
    "results") {
  std::string reply;
  CHECK(CallDaemon("/nonexistent/socket", "/a.B/C", "", kTimeout, &reply) == CallResult::kNoDaemon);
  CHECK(CallDaemon(std::string(500, 'x'), "/a.B/C", "", kTimeout, &reply) == CallResult::kNoDaemon);
  CHECK(CallDaemon("/nonexistent/socket", "/a.B/C", std::string(20'000, 'x'), kTimeout, &reply) ==
        CallResult::kBroken);
}

}  // namespace
}  // namespace detshare::nvml
