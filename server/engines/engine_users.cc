#include "server/engines/engine_users.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "server/base/errno_text.h"
#include "server/shared_memory/access_list.h"

namespace detshare {
namespace {

absl::Status Failed(const std::string& what, int error) {
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", ErrnoText(error)));
}

bool Give(const EngineUser& user, const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) return false;
  if (found.st_uid == user.uid && found.st_gid == user.gid) return true;
  if (!S_ISDIR(found.st_mode) && (!S_ISREG(found.st_mode) || found.st_nlink != 1)) return true;
  return lchown(path.c_str(), user.uid, user.gid) == 0;
}

}  // namespace

absl::Status LetsUsersThrough(const std::string& directory) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::canonical(directory, error);
  if (error) return Failed(absl::StrCat("cannot find ", directory), error.value());
  for (;; path = path.parent_path()) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0)
      return Failed(absl::StrCat("cannot look at ", path.string()), errno);
    if ((status.st_mode & S_IXOTH) == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "engine_users needs a runtime directory that all users can reach: chmod o+x ",
          path.string()));
    }
    if (path == path.root_path()) return absl::OkStatus();
  }
}

absl::Status EngineUsers::Check(const std::string& directory) {
  for (const int capability : {CAP_SETUID, CAP_SETGID, CAP_CHOWN, CAP_KILL}) {
    if (geteuid() != 0 || prctl(PR_CAPBSET_READ, capability) != 1) {
      return absl::FailedPreconditionError(
          "engine_users needs a daemon that runs as root with the capabilities CHOWN, SETUID, "
          "SETGID "
          "and KILL");
    }
  }
  DETSHARE_RETURN_IF_ERROR(LetsUsersThrough(directory));
  const std::string probe = directory + "/.access_list";
  const int fd = open(probe.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Failed(absl::StrCat("cannot create ", probe), errno);
  const bool possible = LetUserUse(fd, 1);
  const int error = errno;
  close(fd);
  unlink(probe.c_str());
  if (possible) return absl::OkStatus();
  return Failed(absl::StrCat("engine_users needs a runtime directory on a file system with access "
                             "lists, such as a tmpfs; ",
                             directory),
                error);
}

std::optional<uid_t> EngineUsers::Choose(const std::set<uid_t>& taken) {
  for (uint32_t i = 0; i < range_.size(); ++i) {
    const uid_t user = range_.first + next_;
    next_ = (next_ + 1) % range_.size();
    if (!taken.contains(user)) return user;
  }
  return std::nullopt;
}

absl::Status MakeDirectoryFor(const EngineUser& user, const std::string& path) {
  // The mode is set whatever the umask is.
  if (mkdir(path.c_str(), 0711) == 0 && chmod(path.c_str(), 0711) == 0 &&
      lchown(path.c_str(), user.uid, user.gid) == 0)
    return absl::OkStatus();
  return Failed(absl::StrCat("cannot make ", path, " for user ", user.uid), errno);
}

absl::Status GiveTreeTo(const EngineUser& user, const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return Failed(absl::StrCat("cannot make ", path), errno);
  if (!Give(user, path))
    return Failed(absl::StrCat("cannot give ", path, " to user ", user.uid), errno);
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(path, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (!Give(user, entry->path().string()))
      return Failed(absl::StrCat("cannot give ", path, " to user ", user.uid), errno);
  }
  return error ? Failed(path, error.value()) : absl::OkStatus();
}

}  // namespace detshare
