#include "policy/shared_object.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "policy/registry.h"
#include "tests/policy/virtual_device.h"

namespace detshare::policy {
namespace {

std::string PathOf(const std::string& file) { return std::filesystem::absolute(file).string(); }

const char kExample[] = "policy/example/shortest_first.so";

TEST_CASE("A policy from a shared object decides like any other") {
  auto policy = CreatePolicy(PathOf(kExample), {{{"window", "50us"}}});
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

TEST_CASE("A shared object refuses its own parameters with its own words") {
  const absl::Status status = CreatePolicy(PathOf(kExample), {{{"speed", "9"}}}).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(status.message()).find("it has window") != std::string::npos);
}

TEST_CASE("What is no policy, or one for another interface, is not loaded") {
  const auto refused = [](const std::string& path, absl::StatusCode code, const char* why) {
    const absl::Status status = CreatePolicy(path, {}).status();
    CHECK(status.code() == code);
    INFO(status.message());
    CHECK(std::string(status.message()).find(why) != std::string::npos);
  };
  refused(PathOf("tests/policy/no_policy.so"), absl::StatusCode::kFailedPrecondition,
          "is not a policy");
  refused(PathOf("tests/policy/other_policy.so"), absl::StatusCode::kFailedPrecondition,
          "another DetShare");
  refused("/nowhere/policy.so", absl::StatusCode::kNotFound, "/nowhere/policy.so");
  refused(PathOf("tests/policy/shared_object_test.cc"), absl::StatusCode::kNotFound, "");
  refused("./policy.so", absl::StatusCode::kInvalidArgument, "absolute");
}

}  // namespace
}  // namespace detshare::policy
