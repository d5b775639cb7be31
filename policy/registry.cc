#include "policy/registry.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "policy/automatic/automatic.h"
#include "policy/fair/fair.h"
#include "policy/priority/priority.h"
#include "policy/static_shares/static_shares.h"
#include "policy/temporal/temporal.h"
#include "policy/tpot_first/tpot_first.h"
#include "policy/turns/turns.h"
#include "policy/whole/whole.h"

namespace detshare::policy {
namespace {

struct Entry {
  absl::string_view name;
  absl::string_view purpose;
  absl::StatusOr<std::unique_ptr<Policy>> (*create)(const Options&);
  absl::Span<const Parameter> (*parameters)();
};

absl::Span<const Parameter> None() { return {}; }

constexpr Entry kPolicies[] = {
    {"auto", "any mix of programs, and tenants of which nothing is known", CreateAutomatic,
     AutomaticParameters},
    {"tpot-first", "serving of language models, beside any other work", CreateTpotFirst,
     TpotFirstParameters},
    {"priority", "latency tenants beside batch", CreatePriority, PriorityParameters},
    {"fair", "equal tenants, or shares by weight", CreateFair, FairParameters},
    {"temporal", "exact shares of time; programs that depend on the order of blocks",
     CreateTemporal, TemporalParameters},
    {"static", "hard shares of the SMs", CreateStaticShares, None},
    {"whole", "a baseline: the hardware shares", CreateWhole, None},
};

absl::StatusOr<const Entry*> Find(absl::string_view name) {
  std::string known;
  for (const Entry& entry : kPolicies) {
    if (entry.name == name) return &entry;
    absl::StrAppend(&known, known.empty() ? "" : ", ", entry.name);
  }
  return absl::NotFoundError(absl::StrCat("no policy is called \"", name, "\"; the policies are ",
                                          known, ", and shared objects by their absolute paths"));
}

absl::StatusOr<std::unique_ptr<Policy>> CreateBare(std::string_view name, const Options& options,
                                                   Warn warn) {
  if (IsSharedObject(name)) return LoadPolicy(std::string(name), options, std::move(warn));
  absl::StatusOr<const Entry*> entry = Find({name.data(), name.size()});
  if (!entry.ok()) return entry.status();
  // Policies without parameters do not check this themselves.
  absl::StatusOr<ParameterValues> values =
      ParameterValues::Read((*entry)->name, (*entry)->parameters(), options);
  if (!values.ok()) return values.status();
  return (*entry)->create(options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> CreatePolicy(std::string_view name, const Options& options,
                                                     Warn warn) {
  absl::StatusOr<std::unique_ptr<Policy>> policy = CreateBare(name, options, std::move(warn));
  // Under a policy that has turns for all coroutines, exclusive tenants need nothing more.
  if (!policy.ok() || (*policy)->TakesTurns({})) return policy;
  return WithExclusiveTurns(*std::move(policy));
}

absl::StatusOr<absl::Span<const Parameter>> ParametersOf(std::string_view name) {
  absl::StatusOr<const Entry*> entry = Find({name.data(), name.size()});
  if (!entry.ok()) return entry.status();
  return (*entry)->parameters();
}

std::string PurposeOf(std::string_view name) {
  absl::StatusOr<const Entry*> entry = Find({name.data(), name.size()});
  return entry.ok() ? std::string((*entry)->purpose) : "";
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kPolicies) names.emplace_back(entry.name);
  return names;
}

}  // namespace detshare::policy
