// A file that one process at a time has locked.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace detshare {

// Locks the file, and makes it if there is none. It stays when the lock ends. Returns a descriptor,
// which the caller owns: the lock ends when it is closed, which also happens when the process ends
// or executes another program. Returns FailedPrecondition if the file is locked already.
absl::StatusOr<int> LockFile(const std::string& path);

}  // namespace detshare
