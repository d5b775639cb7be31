// Messages with descriptors over a socket that keeps message boundaries.
#pragma once

#include <google/protobuf/message_lite.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"

namespace detshare {

// The number of descriptors that a message can carry.
inline constexpr size_t kMaxDescriptors = 2;

// The descriptors that came with a message. Closes those that nobody takes.
class Descriptors {
 public:
  Descriptors() = default;
  ~Descriptors();
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  // Returns the next one, which the caller owns; -1: there is none.
  int Take() { return next_ < count_ ? fds_[next_++] : -1; }

 private:
  friend ssize_t ReceiveMessage(int socket, std::vector<char>* bytes, Descriptors* fds);
  std::array<int, kMaxDescriptors> fds_{};
  size_t count_ = 0, next_ = 0;
};

// Sends a message and descriptors, which the caller keeps. Does not wait. Returns Unavailable, with
// errno left as sendmsg() sets it, if the other end does not read or is gone.
absl::Status SendMessage(int socket, const google::protobuf::MessageLite& message,
                         const std::vector<int>& fds);

// Receives a message of at most 16 KiB: `bytes` becomes its bytes, and `fds` its descriptors, which
// are closed on exec. Does not wait. Returns the result of recvmsg(): 0 if no further message will
// come, and -1 with errno if there is none now.
ssize_t ReceiveMessage(int socket, std::vector<char>* bytes, Descriptors* fds);

}  // namespace detshare
