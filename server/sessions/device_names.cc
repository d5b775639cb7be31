#include "server/sessions/device_names.h"

#include <algorithm>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace detshare {

int DeviceNames::FindByUuid(const std::string& id, const std::vector<int>& among) const {
  const std::string wanted = absl::AsciiStrToLower(id.rfind("GPU-", 0) == 0 ? id : "GPU-" + id);
  if (wanted.size() <= 4) return -1;
  int found = -1;
  for (const int index : among) {
    const std::string uuid = absl::AsciiStrToLower(uuids_[static_cast<size_t>(index)]);
    if (uuid.compare(0, wanted.size(), wanted) != 0) continue;
    if (found >= 0) return -1;
    found = index;
  }
  return found;
}

absl::StatusOr<std::vector<int>> DeviceNames::Choose(const std::vector<std::string>& ids,
                                                     const TenantEndpoint* endpoint) const {
  std::vector<int> all(uuids_.size()), shown;
  std::iota(all.begin(), all.end(), 0);
  if (endpoint == nullptr) {
    shown = all;
  } else {
    for (const std::string& id : endpoint->device_ids) {
      shown.push_back(FindByUuid(id, all));
      if (shown.back() < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("the endpoint shows device ", id,
                         ", which the daemon does not have: close it and open it again"));
      }
    }
  }
  if (ids.empty()) return shown;
  std::vector<int> chosen;
  for (const std::string& id : ids) {
    int index = -1, position = -1;
    if (absl::SimpleAtoi(id, &position)) {
      if (position >= 0 && position < static_cast<int>(shown.size())) index = shown[position];
    } else {
      index = FindByUuid(id, all);
    }
    if (std::find(shown.begin(), shown.end(), index) == shown.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no device ", id.substr(0, 64), "; the daemon has ", shown.size()));
    }
    if (std::find(chosen.begin(), chosen.end(), index) != chosen.end()) {
      return absl::InvalidArgumentError(absl::StrCat("device ", index, " is named twice"));
    }
    chosen.push_back(index);
  }
  return chosen;
}

absl::StatusOr<std::vector<int>> DeviceNames::ChooseVisible(const std::vector<std::string>& ids,
                                                            const std::vector<int>& granted) const {
  if (ids.empty()) return granted;
  std::vector<int> chosen;
  for (const std::string& id : ids) {
    int index = -1, position = -1;
    if (!absl::SimpleAtoi(id, &position)) {
      index = FindByUuid(id, granted);
    } else if (position >= 0 && position < static_cast<int>(granted.size())) {
      index = granted[position];
    }
    if (index < 0 || std::find(chosen.begin(), chosen.end(), index) != chosen.end()) break;
    chosen.push_back(index);
  }
  if (chosen.empty()) {
    return absl::NotFoundError(
        absl::StrCat("CUDA_VISIBLE_DEVICES names none of the ", granted.size(), " devices"));
  }
  return chosen;
}

}  // namespace detshare
