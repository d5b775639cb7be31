// A range of user IDs in the configuration.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace detshare {

struct UserRange {
  uid_t first = 0, last = 0;

  uint32_t size() const { return last - first + 1; }
};

// Reads "FIRST-LAST", two numbers. Returns nothing for any other text, for a range with root or with
// one of the two highest IDs, which stand for no user, and for more than 65,536 users.
std::optional<UserRange> ParseUserRange(absl::string_view text);

}  // namespace detshare
