#include "policy/registry.h"

#include "absl/status/status.h"
#include "policy/static_shares/static_shares.h"
#include "policy/whole/whole.h"

namespace detshare::policy {
namespace {

using Factory = absl::StatusOr<std::unique_ptr<Policy>> (*)(const Options&);

struct Entry {
  std::string_view name;
  Factory create;
};

constexpr Entry kPolicies[] = {
    {"whole", CreateWhole},
    {"static", CreateStaticShares},
};

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> CreatePolicy(std::string_view name,
                                                     const Options& options) {
  std::string known;
  for (const Entry& entry : kPolicies) {
    if (entry.name == name) return entry.create(options);
    if (!known.empty()) known += ", ";
    known += entry.name;
  }
  return absl::NotFoundError("no policy is called \"" + std::string(name) + "\"; there are " +
                             known);
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kPolicies) names.emplace_back(entry.name);
  return names;
}

}  // namespace detshare::policy
