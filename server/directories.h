// The directories of the daemon's socket and of the files that it shares with clients.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace detshare {

// Returns the directory of the sessions' files: `configured`, or the socket's directory if
// `configured` is "".
std::string RuntimeDirectory(const std::string& configured, const std::string& socket);

// Makes the socket's directory and the runtime directory if they do not exist. Their mode is 0755
// whatever the umask is, because clients of all users reach the socket and the directories of their
// sessions. The parents exist. A directory that cannot be made is noticed by its first use.
void MakeDirectories(const std::string& socket, const std::string& runtime_directory);

// Logs a warning if the directory is not on a tmpfs, where real GPUs reach files.
void WarnUnlessOnTmpfs(const std::string& runtime_directory);

// Keeps other daemons from having their files in the same directory, until it is destroyed or the
// process ends or executes another program.
class RuntimeLock {
 public:
  RuntimeLock() = default;
  ~RuntimeLock();
  RuntimeLock(const RuntimeLock&) = delete;
  RuntimeLock& operator=(const RuntimeLock&) = delete;

  // Called once. The directory exists. Returns FailedPrecondition if another daemon has the lock.
  absl::Status Take(const std::string& runtime_directory);

 private:
  int fd_ = -1;
};

}  // namespace detshare
