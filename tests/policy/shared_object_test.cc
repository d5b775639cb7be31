#include "policy/shared_object.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "policy/registry.h"
#include "tests/policy/virtual_device.h"

namespace detshare::policy {
namespace {

std::string PathOf(const std::string& file) { return std::filesystem::absolute(file).string(); }

const char kExample[] = "policy/example/shortest_first.so";

TEST_CASE("A policy from a shared object decides like any other") {
  auto policy = CreatePolicy(PathOf(kExample), {{{"window", "50us"}}},
                             [](const std::string& text) { FAIL("a warning: " << text); });
  INFO(policy.status().message());
  REQUIRE(policy.ok());
  VirtualDevice device({132, 8}, *std::move(policy));
  Tenant tenant;
  tenant.name = "short";
  const size_t brief = device.Open(tenant, Arrivals(5 * kMillisecond, {kMillisecond}, 3));
  tenant.name = "long";
  device.Open(tenant, Steady(std::vector<Nanoseconds>(1000, 30 * kMicrosecond)));
  device.Run(2 * kSecond);
  CHECK(Quantile(device[brief].latencies, 0.9) < 1200 * kMicrosecond);
}

TEST_CASE("A shared object refuses its parameters with its own messages") {
  const absl::Status status = CreatePolicy(PathOf(kExample), {{{"speed", "9"}}}).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(status.message()).find("it has window") != std::string::npos);
}

TEST_CASE("A shared object without a policy, or for another interface, is not loaded") {
  const auto refused = [](const std::string& path, absl::StatusCode code, const char* why) {
    const absl::Status status = CreatePolicy(path, {}).status();
    CHECK(status.code() == code);
    INFO(status.message());
    CHECK(std::string(status.message()).find(why) != std::string::npos);
  };
  refused(PathOf("tests/policy/no_policy.so"), absl::StatusCode::kFailedPrecondition,
          "is not a policy");
  char folder[] = "/tmp/other-policy-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  for (const char* field :
       {"version", "snapshot_bytes", "coroutine_bytes", "tenant_bytes", "grant_bytes"}) {
    INFO(field);
    // An object of its own for each field, because a loaded one stays as it is.
    const std::string copy = std::string(folder) + "/" + field + ".so";
    std::filesystem::copy_file(PathOf("tests/policy/other_policy.so"), copy);
    setenv("OTHER_FIELD", field, /*overwrite=*/1);
    refused(copy, absl::StatusCode::kFailedPrecondition, "another DetShare");
  }
  unsetenv("OTHER_FIELD");
  std::filesystem::remove_all(folder);
  refused("/nowhere/policy.so", absl::StatusCode::kNotFound, "/nowhere/policy.so");
  refused(PathOf("tests/policy/shared_object_test.cc"), absl::StatusCode::kNotFound, "");
  refused("./policy.so", absl::StatusCode::kInvalidArgument, "absolute");
}

TEST_CASE("Invalid decisions of a shared object are corrected, with one warning") {
  std::vector<std::string> warnings;
  auto policy = CreatePolicy(PathOf("tests/policy/wild_policy.so"), {},
                             [&](const std::string& text) { warnings.push_back(text); });
  INFO(policy.status().message());
  REQUIRE(policy.ok());
  const std::vector<SmRange> partitions = {SmRange{}, SmRange{0, 8}};
  Tenant tenant;
  std::vector<CoroutineView> views(2);
  for (CoroutineView& view : views) view.tenant = &tenant;
  Snapshot snapshot;
  snapshot.now = kSecond;
  snapshot.device = {132, 8};
  snapshot.partitions = partitions;
  snapshot.coroutines = absl::MakeConstSpan(views).first(1);
  (*policy)->Decide(snapshot);
  REQUIRE(warnings.size() == 1);
  INFO(warnings[0]);
  CHECK(warnings[0].find("wild_policy.so cannot be carried out: the rank is 8, not 0 to 7") !=
        std::string::npos);
  snapshot.coroutines = views;
  const Decision decision = (*policy)->Decide(snapshot);
  CHECK(warnings.size() == 1);
  REQUIRE(decision.grants.size() == 2);
  const Grant& grant = decision.grants[0];
  CHECK(grant.rank == kRanks - 1);
  REQUIRE(grant.tail.has_value());
  for (const Limits& limits : {grant.idle, grant.contended, *grant.tail}) {
    CHECK(limits.partition == 0);
    CHECK(limits.long_partition == 0);
    CHECK(limits.yielding_partition == 0);
    CHECK(limits.window == 0);
  }
  CHECK(grant.idle.max_throttle == kMicrosecond);
  CHECK(grant.tail->max_throttle == 10 * kSecond);
  CHECK(grant.contention_phase == 1);
  CHECK(grant.budget == kMicrosecond);
  CHECK(std::vector<int>(grant.prepare.begin(), grant.prepare.end()) == std::vector<int>{0, 1});
  CHECK(decision.ask_again_at == kSecond + kMicrosecond);
}

}  // namespace
}  // namespace detshare::policy
