// Small files in which a process keeps what the process that replaces it must know.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace detshare {

// Replaces the file as a whole: a reader finds the old text or the new one. Only the user of this
// process can read it, and `readers`, if it is not 0. The folder is one where only this process
// writes. Returns Unavailable with the reason.
absl::Status WriteKeptFile(const std::string& path, absl::string_view text, gid_t readers = 0);
// Returns NotFound if there is no such file, and InvalidArgument if it has more than `max_bytes`.
absl::StatusOr<std::string> ReadKeptFile(const std::string& path, size_t max_bytes);

}  // namespace detshare
