// The directories of the daemon's socket and of the files that it shares with clients.
#pragma once

#include <string>

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

}  // namespace detshare
