#include "server/shared_memory/client_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/status_cuda.h"
#include "proto/ring_abi.h"

namespace detshare {
namespace {

// A file may end within its last page, and a mapping has the page whole.
bool HasPages(const struct stat& file, uint64_t bytes) {
  constexpr uint64_t kMask = kPageBytes - 1;
  return ((static_cast<uint64_t>(file.st_size) + kMask) & ~kMask) >= bytes;
}

// Returns `fd` if it is a regular file on a tmpfs, belongs to `uid` and has pages for `bytes` bytes.
// Otherwise closes it and returns -1. -1 stays -1.
int OnlyOwnMemoryFile(int fd, uid_t uid, uint64_t bytes) {
  if (fd < 0) return -1;
  struct stat file;
  struct statfs system;
  if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_uid == uid &&
      HasPages(file, bytes) && fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC) {
    return fd;
  }
  close(fd);
  return -1;
}

// Opens the target of a link in the client's directory of /proc, even if the file's name is gone.
// If the client has died and another process has its pid, OnlyOwnMemoryFile() refuses files of
// other users.
int OpenLink(const ClientMapping& mapping, const std::string& link, uint64_t bytes) {
  if (mapping.pid <= 0) return -1;
  const std::string path = absl::StrCat("/proc/", mapping.pid, "/", link);
  // First opens the path without opening the file itself, which could be a device.
  const int found = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (found < 0) return -1;
  struct stat file;
  struct statfs system;
  int fd = -1;
  if (fstat(found, &file) == 0 && S_ISREG(file.st_mode) && fstatfs(found, &system) == 0 &&
      system.f_type == TMPFS_MAGIC && file.st_dev == mapping.device &&
      file.st_ino == mapping.inode) {
    fd = open(absl::StrCat("/proc/self/fd/", found).c_str(), O_RDWR | O_CLOEXEC);
  }
  close(found);
  return OnlyOwnMemoryFile(fd, mapping.uid, bytes);
}

// Needs CAP_CHECKPOINT_RESTORE.
int OpenMapping(const ClientMapping& mapping, uint64_t bytes) {
  return OpenLink(mapping,
                  absl::StrCat("map_files/", absl::Hex(mapping.begin), "-", absl::Hex(mapping.end)),
                  bytes);
}

// Needs what a debugger needs to read a process: the same user, or CAP_SYS_PTRACE.
int OpenDescriptor(const ClientMapping& mapping, uint64_t bytes) {
  if (mapping.descriptor < 0) return -1;
  return OpenLink(mapping, absl::StrCat("fd/", mapping.descriptor), bytes);
}

// Opens a path without links below the client's root directory, which may be a container's. Needs
// what a debugger needs to read the process. A client without a pid has the daemon's root directory
// if it is the daemon's user, and not root, which is also the user of containers.
int OpenBelowRoot(const ClientMapping& mapping, const std::string& path) {
  std::string root = "/";
  if (mapping.pid > 0) {
    root = absl::StrCat("/proc/", mapping.pid, "/root");
  } else if (mapping.uid == 0 || mapping.uid != geteuid()) {
    return -1;
  }
  const int directory = open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return -1;
  open_how how{};
  how.flags = O_RDWR | O_NONBLOCK | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  const int fd = static_cast<int>(syscall(SYS_openat2, directory, path.c_str(), &how, sizeof(how)));
  close(directory);
  return fd;
}

int OpenByName(const ClientMapping& mapping, uint64_t bytes) {
  const std::string& name = mapping.name;
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos) {
    return -1;
  }
  const int fd =
      OnlyOwnMemoryFile(OpenBelowRoot(mapping, absl::StrCat("dev/shm/", name)), mapping.uid, bytes);
  if (fd < 0) return -1;
  struct stat file;
  // The name may mean another file by now.
  if (fstat(fd, &file) == 0 && file.st_dev == mapping.device && file.st_ino == mapping.inode)
    return fd;
  close(fd);
  return -1;
}

}  // namespace

absl::StatusOr<int> OpenClientFile(const ClientMapping& mapping, uint64_t bytes) {
  int fd = OpenMapping(mapping, bytes);
  if (fd < 0) fd = OpenDescriptor(mapping, bytes);
  if (fd < 0) fd = OpenByName(mapping, bytes);
  if (fd < 0)
    return CudaError(kCudaErrorNotSupported, "a shared mapping whose file cannot be opened");
  return fd;
}

}  // namespace detshare
