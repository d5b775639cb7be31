#include "policy/placement.h"

#include <catch2/catch.hpp>

namespace detshare::policy {
namespace {

PlacementRequest Request(TenantClass tenant_class, uint64_t memory, double memory_bound = -1) {
  PlacementRequest request;
  request.tenant.name = "t";
  request.tenant.tenant_class = tenant_class;
  request.memory = memory;
  request.memory_bound = memory_bound;
  return request;
}

void Put(const PlacementRequest& request, DeviceLoad* device) {
  device->memory_used += request.memory;
  device->sessions.push_back(request);
}

std::vector<int> PlaceAll(const char* name, std::vector<DeviceLoad> devices,
                          const std::vector<PlacementRequest>& requests) {
  auto placement = *CreatePlacement(name);
  std::vector<int> places;
  Nanoseconds now = 0;
  for (const PlacementRequest& request : requests) {
    const absl::StatusOr<int> place = placement->Place(request, devices);
    places.push_back(place.ok() ? *place : -1);
    if (!place.ok()) continue;
    Put(request, &devices[*place]);
    devices[*place].placed_at = ++now;
  }
  return places;
}

constexpr TenantClass kLatency = TenantClass::kLatency, kBatch = TenantClass::kBatch;

TEST_CASE("Placement round-robin takes devices in turn and skips full ones") {
  CHECK(PlaceAll("round-robin", {{10}, {1}, {10}}, std::vector(5, Request(kBatch, 4))) ==
        std::vector<int>{0, 2, 0, 2, -1});
}

TEST_CASE("Placement best-fit leaves large devices free for large requests") {
  CHECK(PlaceAll("best-fit", {{100}, {20}, {30}},
                 {Request(kBatch, 15), Request(kBatch, 15), Request(kBatch, 90)}) ==
        std::vector<int>{1, 2, 0});
}

TEST_CASE("Placement workload-aware separates tenants with objectives") {
  CHECK(PlaceAll("workload-aware", {{100}, {100}, {100}}, std::vector(3, Request(kLatency, 10))) ==
        std::vector<int>{0, 1, 2});
  CHECK(PlaceAll("workload-aware", {{100}, {100}},
                 {Request(kLatency, 10), Request(kBatch, 10), Request(kLatency, 10)}) ==
        std::vector<int>{0, 1, 1});
}

TEST_CASE("Placement workload-aware puts memory-bound work beside compute-bound work") {
  CHECK(PlaceAll("workload-aware", {{100}, {100}},
                 {Request(kBatch, 10, 0.9), Request(kBatch, 10, 0.1), Request(kBatch, 10, 0.1),
                  Request(kBatch, 10, 0.9)}) == std::vector<int>{0, 1, 0, 1});
}

TEST_CASE("Placement needs a device with enough memory, and reports the free memory otherwise") {
  for (const std::string& name : PlacementNames()) {
    auto placement = *CreatePlacement(name);
    const std::vector<DeviceLoad> devices = {{10, 8, {}}, {10, 3, {}}};
    CHECK(*placement->Place(Request(kBatch, 7), devices) == 1);
    const absl::Status status = placement->Place(Request(kBatch, 8), devices).status();
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK(std::string(status.message()).find("more than 7") != std::string::npos);
    CHECK_FALSE(placement->Place(Request(kBatch, 0), {}).ok());
    CHECK_FALSE(placement->Place(Request(kBatch, UINT64_MAX), {{{5, 9, {}}}}).ok());
  }
  // Nothing is requested and no session is open.
  for (const std::string& name : PlacementNames()) {
    auto placement = *CreatePlacement(name);
    std::vector<DeviceLoad> devices = {{10}, {10}, {10}};
    devices[0].open = devices[2].open = false;
    CHECK(*placement->Place(Request(kBatch, 0), devices) == 1);
    devices[1].open = false;
    CHECK_FALSE(placement->Place(Request(kBatch, 0), devices).ok());
  }
  CHECK(CreatePlacement("fastest").status().code() == absl::StatusCode::kNotFound);
  CHECK(PlacementNames().front() == kDefaultPlacement);
}

TEST_CASE("Placement workload-aware takes the fuller of two devices without sessions") {
  CHECK(PlaceAll("workload-aware", {{100}, {50}, {100}}, {Request(kBatch, 10)}) ==
        std::vector<int>{1});
}

TEST_CASE("Placement workload-aware takes the device with fewer sessions if none do harm") {
  PlacementRequest idle = Request(kBatch, 1);
  idle.load = 0;
  std::vector<DeviceLoad> devices = {{10}, {10}};
  devices[0].sessions = {idle, idle};
  devices[1].sessions = {idle};
  devices[0].memory_used = 5;
  CHECK(*(*CreatePlacement("workload-aware"))->Place(idle, devices) == 1);
}

TEST_CASE("Placement workload-aware counts every kind of objective") {
  const std::vector<Nanoseconds Tenant::*> objectives = {&Tenant::slo_latency, &Tenant::slo_ttft,
                                                         &Tenant::slo_tpot};
  for (const auto objective : objectives) {
    PlacementRequest with = Request(TenantClass::kUnset, 10);
    with.tenant.*objective = kMillisecond;
    // Beside batch work rather than beside a tenant with an objective.
    CHECK(PlaceAll("workload-aware", {{100}, {100}}, {with, Request(kBatch, 10), with}) ==
          std::vector<int>{0, 1, 1});
  }
}

TEST_CASE("Placement workload-aware uses the known loads") {
  PlacementRequest light = Request(kBatch, 10), heavy = Request(kBatch, 10);
  light.load = 0.1;
  heavy.load = 5;  // never more than the whole device
  std::vector<DeviceLoad> devices = {{100}, {100}};
  devices[0].sessions = {heavy};
  devices[1].sessions = std::vector(11, light);
  CHECK(*(*CreatePlacement("workload-aware"))->Place(Request(kBatch, 10), devices) == 0);
  devices[1].sessions.resize(9);
  CHECK(*(*CreatePlacement("workload-aware"))->Place(Request(kBatch, 10), devices) == 1);
}

TEST_CASE(
    "Placement workload-aware distinguishes work that never waits for memory from the unknown") {
  std::vector<DeviceLoad> devices = {{100}, {100}};
  devices[0].sessions = {Request(kBatch, 10)};
  devices[1].sessions = {Request(kBatch, 10, 0)};
  CHECK(*(*CreatePlacement("workload-aware"))->Place(Request(kBatch, 10, 1), devices) == 1);
  CHECK(*(*CreatePlacement("workload-aware"))->Place(Request(kBatch, 10, 0), devices) == 0);
}

}  // namespace
}  // namespace detshare::policy
