#include "server/directories.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

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
             "Name another folder "
             "with --runtime-dir, for example /dev/shm/detshare");
}

}  // namespace detshare
