#include "server/base/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/errno_text.h"

namespace detshare {

absl::StatusOr<int> LockFile(const std::string& path) {
  // Who can open a file can lock it.
  const int lock = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock < 0)
    return absl::InternalError(absl::StrCat("cannot open ", path, ": ", ErrnoText(errno)));
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    return absl::FailedPreconditionError(absl::StrCat(path, " is locked"));
  }
  return lock;
}

}  // namespace detshare
