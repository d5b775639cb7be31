// Removes directories in which clients create what they like.
//
// std::filesystem::remove_all() holds a descriptor for each level, so a client that makes a deep
// tree takes all descriptors of the process that removes it. The functions here hold two, however
// deep the tree is. They follow no link at the end of `path` or below it, and others may create,
// move and remove things there meanwhile. A removal does a bounded amount of work. Where others
// create things faster than it removes them, it gives up.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace detshare {

// Removes `path` and everything in it. Does nothing if `path` does not exist. An error says why a
// part is left.
absl::Status TryRemoveTree(const std::string& path);
// The same. Logs a warning if a part is left.
void RemoveTree(const std::string& path);
// Removes everything in the directory but the entry named `except`.
absl::Status TryRemoveContents(int directory_fd, const std::string& except);

}  // namespace detshare
