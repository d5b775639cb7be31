#include "coroutine_runtime/by_tenant.h"

#include <catch2/catch.hpp>
#include <string>

namespace detshare {
namespace {

std::string Name(size_t i) { return "tenant" + std::to_string(i); }

// `count` tenants that were in use once, with one each; the first until 1, the second until 2, ...
ByTenant<int> AfterUse(size_t count) {
  ByTenant<int> tenants;
  for (size_t i = 0; i < count; ++i) {
    tenants.Begin(Name(i), 0);
    ++tenants.At(Name(i));
    tenants.End(Name(i), static_cast<int64_t>(i) + 1);
  }
  return tenants;
}

TEST_CASE("A new tenant gets the place of the one that has been out of use the longest") {
  ByTenant<int> tenants = AfterUse(kMaxTenantsApart);
  tenants.Begin("new", kTenantKeptNs + 1);
  CHECK(tenants.NameFor("new") == "new");
  CHECK_FALSE(tenants.all().contains(Name(0)));
  CHECK(tenants.all().size() == kMaxTenantsApart);
  // The next one has been out of use for too short a time, so nobody may have read its figures.
  tenants.Begin("newer", kTenantKeptNs + 1);
  CHECK(tenants.NameFor("newer") == kOtherTenants);
  CHECK(tenants.all().contains(Name(1)));
}

TEST_CASE("A tenant counted with others stays there until its use ends") {
  ByTenant<int> tenants = AfterUse(kMaxTenantsApart);
  tenants.Begin("new", 1);
  tenants.Begin("new", 1);
  tenants.At("new") += 5;
  CHECK(tenants.all().at(kOtherTenants) == 5);
  // Now others could make room, but the figures under (other) must not fall.
  tenants.Begin("new", 2 * kTenantKeptNs);
  CHECK(tenants.NameFor("new") == kOtherTenants);
  for (int i = 0; i < 3; ++i) tenants.End("new", 2 * kTenantKeptNs);
  tenants.Begin("new", 2 * kTenantKeptNs);
  CHECK(tenants.NameFor("new") == "new");
  CHECK(tenants.At("new") == 0);
  CHECK(tenants.all().at(kOtherTenants) == 5);
}

TEST_CASE("Tenants that are configured, or in use, keep their places") {
  ByTenant<int> tenants;
  tenants.Reserve("configured");
  tenants.Begin("configured", 0);
  tenants.End("configured", 0);
  for (size_t i = 1; i < kMaxTenantsApart; ++i) tenants.Begin(Name(i), 0);
  // A session that was opened twice is in use until it has ended twice.
  tenants.Begin(Name(1), 0);
  tenants.End(Name(1), 0);
  tenants.Begin("new", 10 * kTenantKeptNs);
  CHECK(tenants.NameFor("new") == kOtherTenants);
  CHECK(tenants.all().contains("configured"));
  CHECK(tenants.all().size() == kMaxTenantsApart + 1);
  tenants.End(Name(1), 10 * kTenantKeptNs);
  tenants.Begin("newer", 11 * kTenantKeptNs);
  CHECK(tenants.NameFor("newer") == "newer");
  CHECK_FALSE(tenants.all().contains(Name(1)));
}

TEST_CASE("A tenant that comes back begins anew, and the others' sum is not reused") {
  ByTenant<int> tenants = AfterUse(kMaxTenantsApart);
  tenants.Begin("new", 2 * kTenantKeptNs);  // instead of the first
  tenants.Begin(Name(0), 2 * kTenantKeptNs);
  CHECK(tenants.NameFor(Name(0)) == Name(0));
  CHECK(tenants.At(Name(0)) == 0);
  tenants.Begin(kOtherTenants, 0);
  tenants.End(kOtherTenants, 0);
  for (int i = 0; i < 1000; ++i) tenants.Begin("t" + std::to_string(i), 100 * kTenantKeptNs);
  CHECK(tenants.all().size() <= kMaxTenantsApart + 1);
  CHECK(tenants.all().contains(kOtherTenants));
}

}  // namespace
}  // namespace detshare
