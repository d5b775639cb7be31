#include "client_shim/nvml/daemon_call.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string_view>

#include "client_shim/transport/daemon_socket.h"

namespace detshare::nvml {
namespace {

using Clock = std::chrono::steady_clock;

// HTTP/2 (RFC 9113). A frame has a length (24 bits, of what follows the header), a type, flags, and
// a stream (32 bits).
constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kFrameHeader = 9;
// Both sides may send frames of this size, unless the other side allows more.
constexpr size_t kMaxFrame = 16384;
constexpr uint32_t kStream = 1;
enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kResetStream = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
};
constexpr uint8_t kEndStream = 0x1, kAcknowledged = 0x1, kEndHeaders = 0x4, kPadded = 0x8;
constexpr uint16_t kEnablePush = 2, kInitialWindowSize = 4;

// A gRPC message: one byte says whether it is compressed, then the length (32 bits), then the
// bytes.
constexpr size_t kMessagePrefix = 5;
constexpr size_t kMaxRequest = 16000;
constexpr uint32_t kMaxReply = 4 << 20;
constexpr uint32_t kDefaultWindow = 65535;

void AppendBigEndian(std::string* out, uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) out->push_back(static_cast<char>(value >> (8 * i)));
}

uint32_t BigEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}

void AppendFrame(std::string* out, FrameType type, uint8_t flags, uint32_t stream,
                 std::string_view payload) {
  AppendBigEndian(out, payload.size(), 3);
  out->push_back(static_cast<char>(type));
  out->push_back(static_cast<char>(flags));
  AppendBigEndian(out, stream, 4);
  out->append(payload);
}

// Appends a header in the form that needs no table (RFC 7541, 6.2.2). Name and value are shorter
// than 127 bytes.
void AppendHeader(std::string* out, std::string_view name, std::string_view value) {
  out->push_back(0);
  for (const std::string_view text : {name, value}) {
    out->push_back(static_cast<char>(text.size()));
    out->append(text);
  }
}

std::string WholeRequest(const std::string& method, const std::string& request) {
  std::string settings;
  AppendBigEndian(&settings, kEnablePush, 2);
  AppendBigEndian(&settings, 0, 4);
  AppendBigEndian(&settings, kInitialWindowSize, 2);
  AppendBigEndian(&settings, kMaxReply + kMaxFrame, 4);
  std::string window;
  AppendBigEndian(&window, kMaxReply + kMaxFrame - kDefaultWindow, 4);
  std::string headers;
  AppendHeader(&headers, ":method", "POST");
  AppendHeader(&headers, ":scheme", "http");
  AppendHeader(&headers, ":path", method);
  AppendHeader(&headers, ":authority", "detshared");
  AppendHeader(&headers, "te", "trailers");
  AppendHeader(&headers, "content-type", "application/grpc");
  std::string message(1, '\0');
  AppendBigEndian(&message, request.size(), 4);
  message += request;

  std::string out(kPreface);
  AppendFrame(&out, kSettings, 0, 0, settings);
  AppendFrame(&out, kWindowUpdate, 0, 0, window);
  AppendFrame(&out, kHeaders, kEndHeaders, kStream, headers);
  AppendFrame(&out, kData, kEndStream, kStream, message);
  return out;
}

// A connected socket with a deadline.
class Wire {
 public:
  Wire(int fd, Clock::time_point deadline) : fd_(fd), deadline_(deadline) {}
  ~Wire() { close(fd_); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  CallResult Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        bytes.remove_prefix(static_cast<size_t>(sent));
      } else if (const CallResult result = AwaitAfterErrno(POLLOUT); result != CallResult::kOk) {
        return result;
      }
    }
    return CallResult::kOk;
  }

  // Receives exactly `count` bytes.
  CallResult Receive(size_t count, std::string* out) {
    out->resize(count);
    for (size_t have = 0; have < count;) {
      const ssize_t got = recv(fd_, out->data() + have, count - have, 0);
      if (got == 0) return CallResult::kBroken;
      if (got > 0) {
        have += static_cast<size_t>(got);
      } else if (const CallResult result = AwaitAfterErrno(POLLIN); result != CallResult::kOk) {
        return result;
      }
    }
    return CallResult::kOk;
  }

 private:
  CallResult AwaitAfterErrno(short events) {
    if (errno == EINTR) return CallResult::kOk;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return CallResult::kBroken;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    if (left <= 0) return CallResult::kTimeout;
    pollfd wait{fd_, events, 0};
    if (poll(&wait, 1, static_cast<int>(left)) < 0 && errno != EINTR) return CallResult::kBroken;
    return CallResult::kOk;
  }

  const int fd_;
  const Clock::time_point deadline_;
};

// Reads frames until the stream ends. A successful call replies with one message. A failed call
// replies without a message; its headers describe the failure and need not be understood here.
CallResult ReadReply(Wire& wire, std::string* reply) {
  std::string header, payload, message;
  for (;;) {
    if (const CallResult result = wire.Receive(kFrameHeader, &header); result != CallResult::kOk)
      return result;
    const std::string_view view = header;
    const uint32_t length = BigEndian(view.substr(0, 3));
    const auto type = static_cast<uint8_t>(header[3]), flags = static_cast<uint8_t>(header[4]);
    const uint32_t stream = BigEndian(view.substr(5, 4)) & 0x7FFFFFFF;
    if (length > kMaxFrame) return CallResult::kBroken;
    if (const CallResult result = wire.Receive(length, &payload); result != CallResult::kOk)
      return result;

    std::string acknowledgement;
    switch (type) {
      case kSettings:
        if ((flags & kAcknowledged) == 0)
          AppendFrame(&acknowledgement, kSettings, kAcknowledged, 0, "");
        break;
      case kPing:
        if ((flags & kAcknowledged) == 0)
          AppendFrame(&acknowledgement, kPing, kAcknowledged, 0, payload);
        break;
      case kData:
        if (stream != kStream || (flags & kPadded) != 0) return CallResult::kBroken;
        message += payload;
        if (message.size() > kMaxReply) return CallResult::kBroken;
        break;
      case kResetStream:
      case kGoAway:
        return CallResult::kBroken;
      default:
        break;
    }
    if (const CallResult result = wire.Send(acknowledgement); result != CallResult::kOk)
      return result;
    if ((type != kData && type != kHeaders) || stream != kStream || (flags & kEndStream) == 0)
      continue;

    if (message.size() < kMessagePrefix || message[0] != 0) return CallResult::kBroken;
    if (BigEndian(std::string_view(message).substr(1, 4)) != message.size() - kMessagePrefix)
      return CallResult::kBroken;
    *reply = message.substr(kMessagePrefix);
    return CallResult::kOk;
  }
}

}  // namespace

CallResult CallDaemon(const std::string& socket_path, const std::string& method,
                      const std::string& request, std::chrono::milliseconds timeout,
                      std::string* reply) {
  if (request.size() > kMaxRequest) return CallResult::kBroken;
  const Clock::time_point deadline = Clock::now() + timeout;
  const int fd = shim::ConnectToDaemon(socket_path);
  if (fd < 0)
    return errno == EACCES || errno == EPERM ? CallResult::kNoPermission : CallResult::kNoDaemon;
  Wire wire(fd, deadline);
  if (const CallResult result = wire.Send(WholeRequest(method, request)); result != CallResult::kOk)
    return result;
  return ReadReply(wire, reply);
}

}  // namespace detshare::nvml
