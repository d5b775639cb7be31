#include "policy/shared_object.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace detshare::policy {
namespace {

struct Closer {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, Closer>;

int Within(int value, int bound) { return value >= 0 && value < bound ? value : 0; }

// Changes any decision into one that the scheduler can carry out.
void Correct(const Snapshot& snapshot, Decision* decision) {
  const int partitions = static_cast<int>(snapshot.partitions.size());
  decision->grants.resize(snapshot.coroutines.size());
  for (Grant& grant : decision->grants) {
    grant.rank = std::clamp(grant.rank, 0, kRanks - 1);
    Limits* const tail = grant.tail.has_value() ? &*grant.tail : &grant.contended;
    for (Limits* limits : {&grant.idle, &grant.contended, tail}) {
      limits->partition = Within(limits->partition, partitions);
      limits->long_partition = Within(limits->long_partition, partitions);
      limits->yielding_partition = Within(limits->yielding_partition, partitions);
      limits->window = std::max<Nanoseconds>(0, limits->window);
      limits->max_throttle =
          std::clamp<Nanoseconds>(limits->max_throttle, kMicrosecond, 10 * kSecond);
    }
    // The comparison also catches NaN.
    if (!(grant.contention_phase >= 0 && grant.contention_phase <= 1)) grant.contention_phase = 1;
    grant.budget = std::max<Nanoseconds>(kMicrosecond, grant.budget);
    for (int& partition : grant.prepare) partition = Within(partition, partitions);
  }
  // The scheduler must not ask the policy in a loop without a pause.
  if (decision->ask_again_at != kForever && snapshot.now < kForever - kMicrosecond) {
    decision->ask_again_at = std::max(decision->ask_again_at, snapshot.now + kMicrosecond);
  }
}

class Loaded final : public Policy {
 public:
  Loaded(Library library, std::unique_ptr<Policy> policy)
      : library_(std::move(library)), policy_(std::move(policy)) {}

  absl::Status Check(absl::Span<const Tenant> tenants) const override {
    return policy_->Check(tenants);
  }
  bool Watches() const override { return policy_->Watches(); }
  bool TakesTurns(absl::Span<const Tenant> tenants) const override {
    return policy_->TakesTurns(tenants);
  }
  std::vector<SmRange> Partitions(const DeviceShape& device,
                                  absl::Span<const Tenant> tenants) const override {
    return policy_->Partitions(device, tenants);
  }
  Decision Decide(const Snapshot& snapshot) override {
    Decision decision = policy_->Decide(snapshot);
    Correct(snapshot, &decision);
    return decision;
  }

 private:
  const Library library_;  // holds the code of policy_
  const std::unique_ptr<Policy> policy_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> LoadPolicy(const std::string& path,
                                                   const Options& options) {
  if (path.empty() || path[0] != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("the path of a policy must be absolute, not \"", path, "\""));
  }
  Library library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot load the policy: ", dlerror()));
  }
  const auto* const found =
      static_cast<const PolicyInterface*>(dlsym(library.get(), kPolicySymbol));
  if (found == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a policy: it does not export ",
                                                      kPolicySymbol,
                                                      "; use DETSHARE_POLICY in one of its files"));
  }
  const PolicyInterface expected;
  if (found->version != expected.version || found->snapshot_bytes != expected.snapshot_bytes ||
      found->coroutine_bytes != expected.coroutine_bytes ||
      found->tenant_bytes != expected.tenant_bytes || found->grant_bytes != expected.grant_bytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " was built for another DetShare (its interface is version ", found->version,
        ", here it is ", expected.version, "): build it again with these headers"));
  }
  std::string error;
  std::unique_ptr<Policy> policy(found->create(options, &error));
  if (policy == nullptr) return absl::InvalidArgumentError(absl::StrCat(path, ": ", error));
  return std::make_unique<Loaded>(std::move(library), std::move(policy));
}

}  // namespace detshare::policy
