// What a job asks for: the text of `--detshare=TEXT`, such as "class=latency,memory=20G".
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace detshare::slurm {

// Settings of the job's tenant endpoint, by the names of the flags of `detsharectl endpoint open`,
// in the order of the text. Only `device` may stand there more than once.
struct JobOptions {
  std::vector<std::pair<std::string, std::string>> settings;
};

// Parses texts of the form NAME=VALUE[,NAME=VALUE...]. InvalidArgument for any other text, with a
// line that says what is allowed. `detsharectl endpoint open` takes all settings that are returned;
// only the daemon can tell whether its devices and policy have room for them.
absl::StatusOr<JobOptions> ParseJobOptions(absl::string_view text);

}  // namespace detshare::slurm
