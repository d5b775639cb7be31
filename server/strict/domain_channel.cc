#include "server/strict/domain_channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/base/errno_text.h"

namespace detshare {
absl::StatusOr<DomainChannel> MakeDomainChannel() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return absl::ResourceExhaustedError(absl::StrCat("socketpair: ", ErrnoText(errno)));
  return DomainChannel{ends[0], ends[1]};
}

absl::Status PassConnection(int channel, int connection) {
  char byte = 0;
  iovec data{&byte, sizeof(byte)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &connection, sizeof(int));
  if (sendmsg(channel, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(byte))
    return absl::UnavailableError(ErrnoText(errno));
  return absl::OkStatus();
}

std::optional<uint64_t> TakeOffer(int channel) {
  uint64_t received = 0;
  if (recv(channel, &received, sizeof(received), MSG_DONTWAIT) != sizeof(received))
    return std::nullopt;
  return received;
}

Received TakeConnection(int channel) {
  char byte = 0;
  iovec data{&byte, sizeof(byte)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t bytes = recvmsg(channel, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  Received received;
  if (bytes < 0) {
    received.end = errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
    return received;
  }
  received.any = bytes > 0;
  received.end = bytes == 0;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
    std::memcpy(&received.connection, CMSG_DATA(header), sizeof(int));
  return received;
}

void OfferToEnd(int channel, uint64_t received) {
  // An offer that cannot be sent is made again later.
  [[maybe_unused]] const ssize_t sent =
      send(channel, &received, sizeof(received), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace detshare
