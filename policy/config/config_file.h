// Reads the configuration file: TOML with the sections and keys of AllConfigSettings() and
// TenantKeys(), and no others.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "policy/config/config.h"

namespace detshare {

struct ConfigProblem {
  int line = 0, column = 0;  // from 1 on; 0: the problem belongs to no place
  std::string text;          // the mistake, and what is allowed
};

struct ParsedConfig {
  Config config;  // not valid if there are problems
  std::vector<ConfigProblem> problems;
};

// Finds all problems, in the order of the file. `text` may be any bytes. A policy in a shared
// object is not loaded and not checked.
ParsedConfig ParseConfig(absl::string_view text);
// Lets the policy check its parameters and the tenants. Loads a policy in a shared object.
absl::Status CheckPolicy(const Config& config);

// One line for each problem: "FILE:LINE:COLUMN: text".
std::string ProblemText(absl::string_view file, const std::vector<ConfigProblem>& problems);

// Reads a regular file of at most 1 MiB. The file must belong to root or to this process's user and
// must not be writable for all users. If it belongs to root, it must not be writable for a group
// other than root's, as sudo requires of its files: the file can name code that the daemon loads.
// For another user's file the group does not matter, because many distributions give each user a
// group without other members and make files writable for it. Returns NotFound, PermissionDenied or
// InvalidArgument, with the reason.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);
// Reads and parses a file. InvalidArgument with all problems as ProblemText(), without the last end
// of line; errors of ReadConfigFile(). `text`: what was parsed; may be null.
absl::StatusOr<Config> LoadConfig(const std::string& path, std::string* text = nullptr);

}  // namespace detshare
