#include "policy/turns/turn_order.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

namespace detshare::policy {
namespace {

constexpr Nanoseconds kSlice = 10 * kMillisecond;

TurnUnit Unit(std::string tenant, bool has_work, double weight = 1) {
  TurnUnit unit;
  unit.tenant = std::move(tenant);
  unit.weight = weight;
  unit.has_work = has_work;
  return unit;
}

TEST_CASE("A turn lasts between a quarter of a slice and four slices, whatever the weights") {
  std::vector<TurnUnit> units = {Unit("heavy", true, 100)};
  for (int i = 0; i < 9; ++i) units.push_back(Unit("light" + std::to_string(i), true));
  TurnOrder order(kSlice);
  const TurnOrder::Turn heavy = order.Next(0, units);
  CHECK(heavy.unit == 0);
  CHECK(heavy.budget == 4 * kSlice);
  CHECK(heavy.ask_again_at == 4 * kSlice);
  const TurnOrder::Turn light = order.Next(heavy.ask_again_at, units);
  CHECK(light.unit == 1);
  CHECK(light.budget == kSlice / 4);
  CHECK(light.ask_again_at == heavy.ask_again_at + kSlice / 4);
}

TEST_CASE("Of units with equal accounts, the one that had the last turn does not get the next") {
  std::vector<TurnUnit> units = {Unit("tenant", true), Unit("tenant", false)};
  units[0].number = 1;
  units[1].number = 2;
  TurnOrder order(kSlice);
  CHECK(order.Next(0, units).unit == 0);
  units[1].has_work = true;  // it starts level with the other
  CHECK(order.Next(kSlice, units).unit == 1);
}

}  // namespace
}  // namespace detshare::policy
