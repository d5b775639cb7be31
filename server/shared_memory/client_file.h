// Finds the file behind a shared mapping of a client, so that the daemon can map it too.
//
// The daemon may run as root, so it opens only what the client's user could have opened. The file
// must be a regular file on a tmpfs, whose reads never wait for another process, and must belong to
// the client's user.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace detshare {

struct ClientMapping {
  int pid = 0;  // from SO_PEERCRED; 0: not known
  uid_t uid = 0;
  uint64_t begin = 0, end = 0;
  uint64_t device = 0, inode = 0;  // as the client says
  // The client says that it has the file open under this number; -1: it has not.
  int descriptor = -1;
  std::string name;  // the client says that this is its name in /dev/shm; may be empty
};

// Returns a descriptor, open for reading and writing, of a file with pages for `bytes` bytes. The
// caller closes it. Returns CUDA_ERROR_NOT_SUPPORTED if no such file is found.
absl::StatusOr<int> OpenClientFile(const ClientMapping& mapping, uint64_t bytes);

}  // namespace detshare
