#include "coroutine_runtime/managed_addresses.h"

#include <catch2/catch.hpp>
#include <iterator>
#include <map>
#include <random>

namespace detshare {
namespace {

constexpr uint64_t kUnit = ManagedAddresses::kUnit;
constexpr uint64_t kBase = 0x530000000000;

TEST_CASE("A range of managed addresses has a power of two of units") {
  CHECK(ManagedAddresses::ReservedFor(1) == kUnit);
  CHECK(ManagedAddresses::ReservedFor(kUnit) == kUnit);
  CHECK(ManagedAddresses::ReservedFor(kUnit + 1) == 2 * kUnit);
  CHECK(ManagedAddresses::ReservedFor(2 * kUnit + 1) == 4 * kUnit);
  ManagedAddresses addresses({kBase, 100 * kUnit}, 100 * kUnit);
  CHECK(addresses.Take(1)->address == kBase);
  CHECK(addresses.Take(3 * kUnit)->address == kBase + kUnit);
  CHECK(addresses.Take(1)->address == kBase + 5 * kUnit);
}

TEST_CASE("A range that was given back serves only ranges of its size, the lowest first") {
  ManagedAddresses addresses({kBase, 100 * kUnit}, 100 * kUnit);
  for (int i = 0; i < 3; ++i) CHECK(addresses.Take(kUnit)->fresh);
  for (const uint64_t unit : {2, 0}) {
    addresses.Free(kUnit);
    addresses.GiveBack(kBase + unit * kUnit, kUnit);
  }
  CHECK(addresses.Take(2 * kUnit)->address == kBase + 3 * kUnit);
  const auto again = addresses.Take(5);
  CHECK(again->address == kBase);
  CHECK_FALSE(again->fresh);
  CHECK(addresses.Take(kUnit)->address == kBase + 2 * kUnit);
}

TEST_CASE("No more bytes are taken than there are, and no address outside of the window") {
  ManagedAddresses addresses({kBase, 4 * kUnit}, kUnit);
  CHECK_FALSE(addresses.Take(kUnit + 1).has_value());
  CHECK_FALSE(addresses.Take(UINT64_MAX).has_value());
  REQUIRE(addresses.Take(kUnit).has_value());
  CHECK_FALSE(addresses.Take(1).has_value());
  addresses.Free(kUnit);
  // The address is not given back. The others remain.
  for (int i = 1; i < 4; ++i) {
    CHECK(addresses.Take(kUnit)->address == kBase + i * kUnit);
    addresses.Free(kUnit);
  }
  CHECK_FALSE(addresses.Take(1).has_value());
}

TEST_CASE("Random ranges of managed addresses never overlap") {
  ManagedAddresses addresses({kBase, 4096 * kUnit}, 512 * kUnit);
  std::minstd_rand random(5);
  std::map<uint64_t, uint64_t> taken;  // address and bytes
  for (int step = 0; step < 20'000; ++step) {
    if (!taken.empty() && random() % 2 == 0) {
      const auto range = std::next(taken.begin(), random() % taken.size());
      addresses.Free(range->second);
      addresses.GiveBack(range->first, ManagedAddresses::ReservedFor(range->second));
      taken.erase(range);
      continue;
    }
    const uint64_t bytes = 1 + random() % (20 * kUnit);
    const auto range = addresses.Take(bytes);
    if (!range.has_value()) continue;
    const auto after = taken.lower_bound(range->address);
    REQUIRE((after == taken.end() || range->address + bytes <= after->first));
    REQUIRE((after == taken.begin() ||
             std::prev(after)->first + std::prev(after)->second <= range->address));
    taken.emplace(range->address, bytes);
  }
}

}  // namespace
}  // namespace detshare
