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

// Changes any decision into one that the scheduler can carry out.
class Corrector {
 public:
  // Returns the first thing that was wrong, in words; "" if nothing was.
  static std::string Correct(const Snapshot& snapshot, Decision* decision) {
    Corrector corrector;
    corrector.All(snapshot, decision);
    return std::move(corrector.first_);
  }

 private:
  void All(const Snapshot& snapshot, Decision* decision) {
    const size_t programs = snapshot.coroutines.size();
    if (decision->grants.size() != programs)
      Note(absl::StrCat("the number of grants is ", decision->grants.size(), ", not ", programs));
    decision->grants.resize(programs);
    partitions_ = static_cast<int>(snapshot.partitions.size());
    for (Grant& grant : decision->grants) OneGrant(&grant);
    // The scheduler must not ask the policy in a loop without a pause.
    if (decision->ask_again_at != kForever && snapshot.now < kForever - kMicrosecond) {
      decision->ask_again_at = std::max(decision->ask_again_at, snapshot.now + kMicrosecond);
    }
  }

  void OneGrant(Grant* grant) {
    Clamp("the rank", 0, kRanks - 1, &grant->rank);
    Limits* const tail = grant->tail.has_value() ? &*grant->tail : &grant->contended;
    for (Limits* limits : {&grant->idle, &grant->contended, tail}) {
      for (int* partition :
           {&limits->partition, &limits->long_partition, &limits->yielding_partition}) {
        Partition(partition);
      }
      Clamp<Nanoseconds>("a window in nanoseconds", 0, kForever, &limits->window);
      Clamp<Nanoseconds>("max_throttle in nanoseconds", kMicrosecond, 10 * kSecond,
                         &limits->max_throttle);
    }
    // The comparison also catches NaN.
    if (!(grant->contention_phase >= 0 && grant->contention_phase <= 1)) {
      Note(absl::StrCat("contention_phase is ", grant->contention_phase, ", not 0 to 1"));
      grant->contention_phase = 1;
    }
    Clamp<Nanoseconds>("the budget in nanoseconds", kMicrosecond, kForever, &grant->budget);
    for (int& partition : grant->prepare) Partition(&partition);
  }

  template <typename T>
  void Clamp(const char* what, T min, T max, T* value) {
    if (*value >= min && *value <= max) return;
    Note(absl::StrCat(what, " is ", *value, ", not ",
                      max == static_cast<T>(kForever) ? absl::StrCat(min, " or more")
                                                      : absl::StrCat(min, " to ", max)));
    *value = std::clamp(*value, min, max);
  }

  void Partition(int* partition) {
    if (*partition >= 0 && *partition < partitions_) return;
    Note(absl::StrCat("a partition is ", *partition, ", not 0 to ", partitions_ - 1));
    *partition = 0;
  }

  void Note(std::string what) {
    if (first_.empty()) first_ = std::move(what);
  }

  int partitions_ = 0;
  std::string first_;
};

class Loaded final : public Policy {
 public:
  Loaded(std::string path, Library library, std::unique_ptr<Policy> policy, Warn warn)
      : path_(std::move(path)),
        library_(std::move(library)),
        policy_(std::move(policy)),
        warn_(std::move(warn)) {}

  absl::Status Check(absl::Span<const Tenant> tenants) const override {
    return policy_->Check(tenants);
  }
  bool Watches() const override { return policy_->Watches(); }
  bool TakesTurns(absl::Span<const Tenant> tenants) const override {
    return policy_->TakesTurns(tenants);
  }
  Nanoseconds EngineTurn() const override { return policy_->EngineTurn(); }
  std::vector<SmRange> Partitions(const DeviceShape& device,
                                  absl::Span<const Tenant> tenants) const override {
    return policy_->Partitions(device, tenants);
  }
  Decision Decide(const Snapshot& snapshot) override {
    Decision decision = policy_->Decide(snapshot);
    const std::string wrong = Corrector::Correct(snapshot, &decision);
    if (!wrong.empty() && warn_ != nullptr) {
      std::exchange(warn_, nullptr)(
          absl::StrCat("a decision of the policy ", path_, " cannot be carried out: ", wrong,
                       ". DetShare corrects it and all further ones; correct the policy"));
    }
    return decision;
  }

 private:
  const std::string path_;
  const Library library_;  // holds the code of policy_
  const std::unique_ptr<Policy> policy_;
  Warn warn_;  // null after the first warning
};

}  // namespace

bool IsSharedObject(std::string_view name) { return name.find('/') != name.npos; }

absl::Status CheckPath(const std::string& path) {
  if (!path.empty() && path[0] == '/') return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the path of a policy must be absolute, not \"", path, "\""));
}

absl::StatusOr<std::unique_ptr<Policy>> LoadPolicy(const std::string& path, const Options& options,
                                                   Warn warn) {
  if (absl::Status status = CheckPath(path); !status.ok()) return status;
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
      found->other_engine_bytes != expected.other_engine_bytes ||
      found->tenant_bytes != expected.tenant_bytes || found->grant_bytes != expected.grant_bytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " was built for another DetShare (its interface is version ", found->version,
        ", here it is ", expected.version, "): build it again with these headers"));
  }
  std::string error;
  std::unique_ptr<Policy> policy(found->create(options, &error));
  if (policy == nullptr) return absl::InvalidArgumentError(absl::StrCat(path, ": ", error));
  return std::make_unique<Loaded>(path, std::move(library), std::move(policy), std::move(warn));
}

}  // namespace detshare::policy
