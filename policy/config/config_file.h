// The configuration file: TOML with the sections and keys of AllSettings() and TenantKeys(), and no
// others.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "policy/config/config.h"

namespace detshare {

struct ConfigProblem {
  int line = 0, column = 0;  // from 1 on; 0 when it belongs to no place
  std::string text;          // what is wrong, and what is allowed
};

struct ParsedConfig {
  Config config;  // of no use when there are problems
  std::vector<ConfigProblem> problems;
};

// Everything that is wrong, in the order of the file. Any bytes are safe. A policy in a shared
// object is not loaded.
ParsedConfig ParseConfig(absl::string_view text);
// What the policy itself says about its parameters and the tenants. Loads it where it is a shared
// object.
absl::Status CheckPolicy(const Config& config);

// "FILE:LINE:COLUMN: text", a line each.
std::string ProblemText(absl::string_view file, const std::vector<ConfigProblem>& problems);

// Reads a file: a regular one of at most 1 MiB that belongs to root or to this user, and that
// nobody else may write to. NotFound, PermissionDenied or InvalidArgument, with the reason.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);
// Reads and parses it; InvalidArgument with all problems, ready to print.
absl::StatusOr<Config> LoadConfig(const std::string& path);

}  // namespace detshare
