// What a node remembers about its jobs from prolog to epilog, as small files in a directory that
// only root can enter. Every hook of the plugin runs in a process of its own, so files are the only
// memory that they share.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace detshare::slurm {

// Processes of one host may use the same directory at the same time.
class Records {
 public:
  // Makes the directory when it is first needed.
  explicit Records(std::string directory) : directory_(std::move(directory)) {}

  // Why the job got no endpoint; nothing if it was not refused.
  absl::Status NoteRefusal(uint32_t job, absl::string_view reason) const;
  std::optional<std::string> Refusal(uint32_t job) const;
  void ForgetRefusal(uint32_t job) const;

  // Jobs that have ended and whose endpoints are still to be closed.
  absl::Status NoteUnclosed(uint32_t job) const;
  std::vector<uint32_t> Unclosed() const;
  void ForgetUnclosed(uint32_t job) const;

  // Calls `act`, which no other process of this host does at the same time. Returns an error, without
  // a call, if the directory cannot be used.
  absl::Status Exclusively(const std::function<void()>& act) const;

 private:
  std::string PathOf(uint32_t job, const char* kind) const;
  absl::StatusOr<int> Open(const std::string& path, int flags) const;
  absl::Status Write(const std::string& path, absl::string_view text) const;

  const std::string directory_;
};

}  // namespace detshare::slurm
