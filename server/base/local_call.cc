#include "server/base/local_call.h"

#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/base/errno_text.h"

namespace detshare {
namespace {

// Bounds what a daemon that a client has taken over can make its caller hold. A part of a trace is
// the longest reply.
constexpr int kMaxReplyBytes = 64 << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectLocally(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return absl::UnavailableError("the socket's path is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxReplyBytes);
  // The socket does not block: a full queue of connections is an error that the caller gets at
  // once.
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0)
    return grpc::CreateCustomInsecureChannelFromFd("detshared", fd, arguments);
  const int error = errno;
  if (fd >= 0) close(fd);
  return absl::UnavailableError(absl::StrCat("cannot connect to ", path, ": ", ErrnoText(error)));
}

}  // namespace detshare
