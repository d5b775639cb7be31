// Finding the file behind a shared mapping of a client.
//
// The daemon may run as root, so it opens nothing that the client's user could not have opened:
// what it finds must be a regular file on a tmpfs (whose reads never wait for anybody), and that
// user's own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace detshare {

struct ClientMapping {
  int pid = 0;  // by the socket; 0: not known
  uid_t uid = 0;
  uint64_t begin = 0, end = 0;
  uint64_t device = 0, inode = 0;  // as the client says
  int descriptor = -1;             // open on the file in the client, as it says; -1: none
  std::string name;                // in /dev/shm, as the client says; may be empty
};

// A descriptor, open for reading and writing, of a file that has at least `bytes` bytes.
// CUDA_ERROR_NOT_SUPPORTED when there is none.
absl::StatusOr<int> OpenClientFile(const ClientMapping& mapping, uint64_t bytes);

}  // namespace detshare
