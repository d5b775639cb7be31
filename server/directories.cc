#include "server/directories.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/base/lock_file.h"
#include "server/base/logging.h"

namespace detshare {
namespace {

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

std::string RuntimeDirectory(const std::string& configured, const std::string& socket) {
  return !configured.empty() ? configured : DirectoryOf(socket);
}

void MakeDirectories(const std::string& socket, const std::string& runtime_directory) {
  for (const std::string& directory : {DirectoryOf(socket), runtime_directory}) {
    if (mkdir(directory.c_str(), 0755) == 0) chmod(directory.c_str(), 0755);
  }
}

void WarnUnlessOnTmpfs(const std::string& runtime_directory) {
  struct statfs system;
  if (statfs(runtime_directory.c_str(), &system) == 0 && system.f_type == TMPFS_MAGIC) return;
  LogWarning(runtime_directory,
             " is not on a tmpfs: GPUs may not reach files there, and sessions would be refused. "
             "Put the socket below /run or "
             "/dev/shm, for example --socket /dev/shm/detshare/detshared.sock");
}

RuntimeLock::~RuntimeLock() {
  if (fd_ >= 0) close(fd_);
}

absl::Status RuntimeLock::Take(const std::string& runtime_directory) {
  constexpr char kAdvice[] = ": put the socket into a directory of its own";
  const absl::StatusOr<int> lock = LockFile(runtime_directory + "/.runtime.lock");
  if (absl::IsFailedPrecondition(lock.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("another detshared keeps its files in ", runtime_directory, kAdvice));
  }
  if (!lock.ok()) {
    return absl::Status(lock.status().code(),
                        absl::StrCat(std::string(lock.status().message()), kAdvice));
  }
  fd_ = *lock;
  return absl::OkStatus();
}

}  // namespace detshare
