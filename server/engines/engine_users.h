// Users of their own for engines, so that an engine whose process was taken over by a hostile image
// reaches no file and no process of others.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "policy/config/user_range.h"

namespace detshare {

// An engine's user and group.
struct EngineUser {
  uid_t uid = 0;
  gid_t gid = 0;
};

// Chooses users of the range. One thread uses it.
class EngineUsers {
 public:
  explicit EngineUsers(UserRange range) : range_(range) {}

  // Returns whether this process can give engines users of their own, whose clients' files are in
  // `directory`; FailedPrecondition with the reason if not.
  static absl::Status Check(const std::string& directory);

  // All engines have this group. It gives them nothing but the settings that the supervisor keeps
  // for them.
  gid_t group() const { return range_.first; }
  // Returns a user that is not taken, and that no engine had for as long as possible, because an
  // ended engine may have left something. Returns nothing if all are taken.
  std::optional<uid_t> Choose(const std::set<uid_t>& taken);

 private:
  const UserRange range_;
  uint32_t next_ = 0;
};

// Returns whether the directory, and those on the way to it, let all users through;
// FailedPrecondition with the first one that does not.
absl::Status LetsUsersThrough(const std::string& directory);
// Makes the directory `path` for an engine, with mode 0711; its parents exist.
absl::Status MakeDirectoryFor(const EngineUser& user, const std::string& path);
// Makes the directory unless it exists, and gives it with all files in it to the engine. Follows no
// link, and leaves files alone that have other names elsewhere.
absl::Status GiveTreeTo(const EngineUser& user, const std::string& path);

}  // namespace detshare
