// An example of a policy in a shared object: coroutines with shorter bursts go first.
//
//   detsharectl policy set /path/to/shortest_first.so --param window=200us
//
// In the repository, `bazel build //policy/example:shortest_first.so` builds it. Elsewhere the package
// detshare-dev has what it needs, and a Makefile.
#include <algorithm>
#include <memory>
#include <vector>

#include "policy/parameters.h"
#include "policy/policy.h"
#include "policy/shared_object.h"
#include "policy/status_macros.h"

namespace {

using detshare::policy::CoroutineView;
using detshare::policy::Decision;
using detshare::policy::DeviceShape;
using detshare::policy::Grant;
using detshare::policy::kRanks;
using detshare::policy::Nanoseconds;
using detshare::policy::Options;
using detshare::policy::Parameter;
using detshare::policy::ParameterKind;
using detshare::policy::ParameterValues;
using detshare::policy::Policy;
using detshare::policy::SmRange;
using detshare::policy::Snapshot;
using detshare::policy::Tenant;

constexpr Parameter kParameters[] = {
    {.name = "window",
     .kind = ParameterKind::kDuration,
     .default_value = "100us",
     .min = "1us",
     .max = "1s",
     .help = "device time in flight of programs whose bursts are not the shortest"},
};

class ShortestFirst final : public Policy {
 public:
  explicit ShortestFirst(Nanoseconds window) : window_(window) {}

  std::vector<SmRange> Partitions(const DeviceShape&, absl::Span<const Tenant>) const override {
    return {};
  }

  Decision Decide(const Snapshot& snapshot) override {
    Decision decision;
    for (const CoroutineView& coroutine : snapshot.coroutines) {
      const auto shorter = std::count_if(snapshot.coroutines.begin(), snapshot.coroutines.end(),
                                         [&](const CoroutineView& other) {
                                           return other.typical_burst < coroutine.typical_burst;
                                         });
      Grant& grant = decision.grants.emplace_back();
      grant.rank = static_cast<int>(std::min<int64_t>(shorter, kRanks - 1));
      if (shorter > 0) grant.idle.window = window_;
      grant.contended = grant.idle;
      if (shorter > 0) grant.contended.window = 0;
    }
    return decision;
  }

 private:
  const Nanoseconds window_;
};

absl::StatusOr<std::unique_ptr<Policy>> Create(const Options& options) {
  DETSHARE_ASSIGN_OR_RETURN(ParameterValues values,
                            ParameterValues::Read("shortest_first", kParameters, options));
  return std::make_unique<ShortestFirst>(values.Duration("window"));
}

}  // namespace

DETSHARE_POLICY(Create)
