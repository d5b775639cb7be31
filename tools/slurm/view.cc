#include "tools/slurm/view.h"

#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace detshare::slurm {

absl::Status ShowEndpoint(const std::string& endpoint, const std::string& runtime) {
  const auto failed = [](const std::string& what) {
    return absl::InternalError(absl::StrCat("cannot ", what, ": ", std::strerror(errno)));
  };
  if (unshare(CLONE_NEWNS) != 0) return failed("make a mount namespace");
  // Mounts of the host still appear here, and those made here do not appear there.
  if (mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return failed("keep mounts apart from the host's");
  if (mount(endpoint.c_str(), runtime.c_str(), nullptr, MS_BIND, nullptr) != 0)
    return failed(absl::StrCat("mount ", endpoint, " at ", runtime));
  return absl::OkStatus();
}

}  // namespace detshare::slurm
