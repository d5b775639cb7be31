#include "policy/config/accounts.h"

#include <grp.h>
#include <pwd.h>

#include <vector>

#include "absl/strings/numbers.h"

namespace detshare {

std::optional<uint32_t> UserId(const std::string& name) {
  uint32_t id = 0;
  if (absl::SimpleAtoi(name, &id)) return id;
  std::vector<char> buffer(65536);
  passwd entry;
  passwd* found = nullptr;
  if (getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr)
    return std::nullopt;
  return found->pw_uid;
}

std::optional<uint32_t> GroupId(const std::string& name) {
  uint32_t id = 0;
  if (absl::SimpleAtoi(name, &id)) return id;
  // The buffer is large, because it also receives the group's members.
  std::vector<char> buffer(1 << 20);
  group entry;
  group* found = nullptr;
  if (getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr)
    return std::nullopt;
  return found->gr_gid;
}

}  // namespace detshare
