#include "server/backends/cuda/ordinary_slice.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace detshare::cuda {
namespace {

using std::chrono::microseconds;
using Slices = std::vector<microseconds>;

class Recorded {
 public:
  OrdinarySlice slice{[this](microseconds set) { all_.push_back(set); }};
  // The slices that were set since the last question.
  Slices Take() { return std::exchange(all_, {}); }

 private:
  Slices all_;
};

TEST_CASE("a call of the driver gets a longer slice until it is over") {
  Recorded recorded;
  {
    const OrdinarySlice::Call call(&recorded.slice);
    CHECK(recorded.Take() == Slices{OrdinarySlice::kLonger});
  }
  CHECK(recorded.Take() == Slices{OrdinarySlice::kShort});
}

TEST_CASE("calls at once share one longer slice") {
  Recorded recorded;
  auto first = std::make_unique<OrdinarySlice::Call>(&recorded.slice);
  auto second = std::make_unique<OrdinarySlice::Call>(&recorded.slice);
  first.reset();
  CHECK(recorded.Take() == Slices{OrdinarySlice::kLonger});
  second.reset();
  CHECK(recorded.Take() == Slices{OrdinarySlice::kShort});
}

TEST_CASE("a call changes nothing while the others are known to have no work") {
  Recorded recorded;
  bool busy = false;
  recorded.slice.ShareWith([&] { return busy; });
  {
    const OrdinarySlice::Call call(&recorded.slice);
    busy = true;
  }
  CHECK(recorded.Take().empty());
  { const OrdinarySlice::Call call(&recorded.slice); }
  CHECK(recorded.Take() == Slices{OrdinarySlice::kLonger, OrdinarySlice::kShort});
}

TEST_CASE("work that shares the device has the driver's slice, also while it keeps the device") {
  Recorded recorded;
  recorded.slice.Keep(true);
  recorded.slice.Share(true);
  CHECK(recorded.Take() == Slices{OrdinarySlice::kLonger, OrdinarySlice::kDefault});
  { const OrdinarySlice::Call call(&recorded.slice); }
  recorded.slice.Keep(false);
  CHECK(recorded.Take().empty());
  recorded.slice.Share(false);
  CHECK(recorded.Take() == Slices{OrdinarySlice::kShort});
}

TEST_CASE("a process that keeps the device has its longer slice through its calls") {
  Recorded recorded;
  recorded.slice.Keep(true);
  { const OrdinarySlice::Call call(&recorded.slice); }
  CHECK(recorded.Take() == Slices{OrdinarySlice::kLonger});
  {
    const OrdinarySlice::Call call(&recorded.slice);
    recorded.slice.Keep(false);
    CHECK(recorded.Take().empty());
  }
  CHECK(recorded.Take() == Slices{OrdinarySlice::kShort});
}

TEST_CASE("the slice is longer until nobody keeps the device any more") {
  Recorded recorded;
  recorded.slice.Keep(true);
  recorded.slice.Keep(true);
  recorded.slice.Keep(false);
  CHECK(recorded.Take() == Slices{OrdinarySlice::kLonger});
  recorded.slice.Keep(false);
  CHECK(recorded.Take() == Slices{OrdinarySlice::kShort});
}

TEST_CASE("a call of a process that shares its GPU with no other does nothing") {
  const OrdinarySlice::Call call(nullptr);
}

}  // namespace
}  // namespace detshare::cuda
