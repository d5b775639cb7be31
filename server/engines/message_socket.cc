#include "server/engines/message_socket.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "server/base/errno_text.h"

namespace detshare {
namespace {

// An endpoint names at most 64 devices, each in less than 128 bytes.
constexpr size_t kMaxMessage = 16 << 10;

}  // namespace

Descriptors::~Descriptors() {
  while (next_ < count_) close(Take());
}

absl::Status SendMessage(int socket, const google::protobuf::MessageLite& message,
                         const std::vector<int>& fds) {
  std::string bytes = message.SerializeAsString();
  iovec data{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
  }
  if (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    return absl::UnavailableError(ErrnoText(errno));
  return absl::OkStatus();
}

ssize_t ReceiveMessage(int socket, std::vector<char>* bytes, Descriptors* fds) {
  bytes->resize(kMaxMessage);
  iovec data{bytes->data(), bytes->size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t count = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0) return count;
  bytes->resize(static_cast<size_t>(count));
  const cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  if (rights != nullptr && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
    fds->count_ = std::min(kMaxDescriptors, (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(fds->fds_.data(), CMSG_DATA(rights), fds->count_ * sizeof(int));
  }
  return count;
}

}  // namespace detshare
