#include "coroutine_runtime/fence_pool.h"

#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "tests/coroutine_runtime/fake_device.h"

namespace detshare {
namespace {

struct FencePoolFixture {
  FakeDevice device;
  std::unique_ptr<FencePool> pool;  // ends after the space
  std::unique_ptr<AddressSpace> space = *device.CreateAddressSpace(uint64_t{1} << 40, 1 << 30);
  FencePoolFixture() { pool = std::make_unique<FencePool>(*space); }
};

TEST_CASE_METHOD(FencePoolFixture, "Leases at the same time have different fences") {
  std::vector<FenceLease> leases;
  std::set<const void*> fences;
  for (int i = 0; i < 1000; ++i) {
    leases.push_back(*pool->Acquire());
    CHECK(fences.insert(leases.back().fence()).second);
    CHECK(leases.back().Next() == 1);
  }
}

TEST_CASE_METHOD(FencePoolFixture, "A fence comes back when its lease ends, and its values go on") {
  const void* fence = nullptr;
  {
    FenceLease lease = *pool->Acquire();
    fence = lease.fence();
    CHECK(lease.Next() == 1);
    CHECK(lease.Next() == 2);
    CHECK_FALSE(lease.point().reached());
    lease.fence()->store(2);
    CHECK(lease.point().reached());
  }
  FenceLease again = *pool->Acquire();
  CHECK(again.fence() == fence);
  CHECK(again.Next() == 3);
  CHECK_FALSE(again.point().reached());
}

TEST_CASE_METHOD(FencePoolFixture,
                 "A lease that is replaced gives its fence back, and one that moved does not") {
  FenceLease first = *pool->Acquire();
  const void* const fence = first.fence();
  FenceLease moved = std::move(first);
  CHECK_FALSE(first);
  CHECK(moved.fence() == fence);
  FenceLease second = *pool->Acquire();
  CHECK(second.fence() != fence);
  moved = std::move(second);
  FenceLease third = *pool->Acquire();
  CHECK(third.fence() == fence);
}

TEST_CASE("A point without a fence is reached") { CHECK(FencePoint{}.reached()); }

}  // namespace
}  // namespace detshare
