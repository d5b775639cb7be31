#include "policy/policy.h"

#include <catch2/catch.hpp>

#include "policy/registry.h"

namespace detshare::policy {
namespace {

const DeviceShape kH200{132, 8};

Snapshot SnapshotOf(std::vector<SessionView> sessions) {
  Snapshot snapshot;
  snapshot.device = kH200;
  snapshot.sessions = std::move(sessions);
  return snapshot;
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
  CHECK(policy->Partitions(kH200).empty());
  const Decision decision = policy->Decide(SnapshotOf({{1, "a"}, {2, "b"}}));
  REQUIRE(decision.bindings.size() == 2);
  CHECK(decision.bindings.at(1).whole());
  CHECK(decision.bindings.at(2).whole());
}

TEST_CASE("Policy static gives declared shares in whole groups and the rest to all others") {
  auto policy = *CreatePolicy("static", {.tenants = {{"a", 50}, {"b", 1}, {"c", 0}}});
  const SmRange a{0, 64}, b{64, 8}, others{72, 60};
  CHECK(policy->Partitions(kH200) == std::vector<SmRange>{a, b, others});
  const Decision decision =
      policy->Decide(SnapshotOf({{1, "c"}, {2, "a"}, {3, "b"}, {4, "a"}, {5, "x"}}));
  CHECK(decision.bindings ==
        std::map<SessionNumber, SmRange>{{1, others}, {2, a}, {3, b}, {4, a}, {5, others}});
}

TEST_CASE("Policy static uses the whole device where no share is declared or left") {
  auto undeclared = *CreatePolicy("static", {});
  CHECK(undeclared->Partitions(kH200).empty());
  CHECK(undeclared->Decide(SnapshotOf({{1, "a"}})).bindings.at(1).whole());

  // 16 groups: the last one has 12 SMs.
  auto full = *CreatePolicy("static", {.tenants = {{"a", 97}, {"b", 3}}});
  CHECK(full->Partitions(kH200) == std::vector<SmRange>{{0, 120}, {120, 12}});
  CHECK(full->Decide(SnapshotOf({{1, "x"}})).bindings.at(1).whole());
}

TEST_CASE("Policy static refuses shares that make no sense") {
  const auto refused = [](std::vector<Tenant> tenants) {
    return CreatePolicy("static", {std::move(tenants)}).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  CHECK(refused({{"a", 60}, {"b", 41}}));
  CHECK(refused({{"a", -1}}));
  CHECK(refused({{"a", 101}}));
  CHECK(refused({{"a", 10}, {"a", 10}}));
}

}  // namespace
}  // namespace detshare::policy
