#include "policy/policy.h"

#include <catch2/catch.hpp>

#include "policy/registry.h"
#include "tests/policy/device_shapes.h"

namespace detshare::policy {
namespace {

Tenant Share(std::string name, int percent) {
  Tenant tenant;
  tenant.name = std::move(name);
  tenant.sm_percent = percent;
  return tenant;
}

// The ranges on which the sessions of these tenants run, on a device with the policy's partitions.
std::vector<SmRange> RangesOf(Policy& policy, const std::vector<Tenant>& tenants,
                              const std::vector<std::string>& names) {
  std::vector<SmRange> partitions = {SmRange{}};
  for (const SmRange& range : policy.Partitions(kH200, tenants)) partitions.push_back(range);
  std::vector<Tenant> running;
  for (const std::string& name : names) running.push_back(Share(name, 0));
  std::vector<CoroutineView> coroutines(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    coroutines[i].id = i + 1;
    coroutines[i].tenant = &running[i];
  }
  Snapshot snapshot;
  snapshot.device = kH200;
  snapshot.partitions = partitions;
  snapshot.tenants = tenants;
  snapshot.coroutines = coroutines;
  std::vector<SmRange> ranges;
  for (const Grant& grant : policy.Decide(snapshot).grants) {
    ranges.push_back(partitions.at(grant.idle.partition));
  }
  return ranges;
}

TEST_CASE("An unknown policy is an error that names the known ones") {
  const absl::Status status = CreatePolicy("fastest", {}).status();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  for (const std::string& name : PolicyNames()) {
    CHECK(std::string(status.message()).find(name) != std::string::npos);
    CHECK(CreatePolicy(name, {}).ok());
  }
}

TEST_CASE("Policy whole puts every session on the whole device") {
  auto policy = *CreatePolicy("whole", {});
  CHECK(policy->Partitions(kH200, {}).empty());
  CHECK(RangesOf(*policy, {}, {"a", "b"}) == std::vector<SmRange>{{}, {}});
}

TEST_CASE("Policy static gives declared shares in whole groups and the rest to all others") {
  auto policy = *CreatePolicy("static", {});
  const std::vector<Tenant> tenants = {Share("a", 50), Share("b", 1), Share("c", 0)};
  const SmRange a{0, 64}, b{64, 8}, others{72, 60};
  CHECK(policy->Partitions(kH200, tenants) == std::vector<SmRange>{a, b, others});
  CHECK(RangesOf(*policy, tenants, {"c", "a", "b", "a", "x"}) ==
        std::vector<SmRange>{others, a, b, a, others});
}

TEST_CASE("Policy static uses the whole device if no share is declared or left") {
  auto policy = *CreatePolicy("static", {});
  CHECK(policy->Partitions(kH200, {}).empty());
  CHECK(RangesOf(*policy, {}, {"a"}) == std::vector<SmRange>{{}});

  // 16 groups. The last one has 12 SMs.
  const std::vector<Tenant> full = {Share("a", 97), Share("b", 3)};
  CHECK(policy->Partitions(kH200, full) == std::vector<SmRange>{{0, 120}, {120, 12}});
  CHECK(RangesOf(*policy, full, {"x"}) == std::vector<SmRange>{{}});
}

TEST_CASE("Policy static refuses invalid shares") {
  auto policy = *CreatePolicy("static", {});
  const auto refused = [&](const std::vector<Tenant>& tenants) {
    return policy->Check(tenants).code() == absl::StatusCode::kInvalidArgument;
  };
  CHECK(refused({Share("a", 60), Share("b", 41)}));
  CHECK(refused({Share("a", -1)}));
  CHECK(refused({Share("a", 101)}));
  CHECK(refused({Share("a", 10), Share("a", 10)}));
  CHECK_FALSE(refused({Share("a", 10), Share("b", 90)}));
}

TEST_CASE("A burst restricts others for a part of its usual length, or else to its end") {
  constexpr Nanoseconds kBegan = 1000, kTypical = 400;
  CHECK(ContentionPhaseEnd(0.25, kBegan, kTypical, 0, false) == 1100);
  CHECK(ContentionPhaseEnd(0, kBegan, kTypical, kTypical, false) == kBegan);
  CHECK(ContentionPhaseEnd(0.25, kBegan, kTypical, 500, false) == 1100);  // a quarter longer
  CHECK(ContentionPhaseEnd(0.25, kBegan, kTypical, 501, false) == kForever);
  CHECK(ContentionPhaseEnd(1, kBegan, kTypical, 0, false) == kForever);
  CHECK(ContentionPhaseEnd(0.25, kBegan, 0, 0, false) == kForever);  // the first burst
  CHECK(ContentionPhaseEnd(0.25, kBegan, kTypical, 0, true) == kForever);
}

}  // namespace
}  // namespace detshare::policy
