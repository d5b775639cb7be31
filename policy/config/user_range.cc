#include "policy/config/user_range.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace detshare {
namespace {

constexpr uid_t kMaxUser = 0xFFFFFFFD;
constexpr uint32_t kMaxUsers = 65536;

bool IsNumber(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return absl::ascii_isdigit(c); });
}

}  // namespace

std::optional<UserRange> ParseUserRange(absl::string_view text) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, '-');
  UserRange range;
  if (ends.size() != 2 || !IsNumber(ends[0]) || !IsNumber(ends[1]) ||
      !absl::SimpleAtoi(ends[0], &range.first) || !absl::SimpleAtoi(ends[1], &range.last))
    return std::nullopt;
  const bool sound = range.first >= 1 && range.first <= range.last && range.last <= kMaxUser &&
                     range.last - range.first < kMaxUsers;
  return sound ? std::optional(range) : std::nullopt;
}

}  // namespace detshare
