#include "server/backends/cuda/ordinary_slice.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "proto/mutex.h"

namespace detshare::cuda {
namespace {

using std::chrono::microseconds;
using Slices = std::vector<microseconds>;

class Recorded {
 public:
  // The slices that were set since the last question.
  Slices Take() {
    const MutexLock lock(&mutex_);
    return std::exchange(all_, {});
  }
  // Waits until a thread has set this slice, and takes all that were set.
  Slices TakeUntil(microseconds last) {
    MutexLock lock(&mutex_);
    while (all_.empty() || all_.back() != last) set_.Wait(&mutex_);
    return std::exchange(all_, {});
  }
  // No change of the slice ends until Go().
  void Hold() {
    const MutexLock lock(&mutex_);
    held_ = true;
  }
  void Go() {
    {
      const MutexLock lock(&mutex_);
      held_ = false;
    }
    set_.SignalAll();
  }

 private:
  void Set(microseconds slice) {
    {
      MutexLock lock(&mutex_);
      while (held_) set_.Wait(&mutex_);
      all_.push_back(slice);
    }
    set_.SignalAll();
  }

  Mutex mutex_;
  CondVar set_;
  Slices all_ ABSL_GUARDED_BY(mutex_);
  bool held_ ABSL_GUARDED_BY(mutex_) = false;

 public:
  OrdinarySlice slice{[this](microseconds set) { Set(set); }};
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
  CHECK(recorded.TakeUntil(OrdinarySlice::kLonger) == Slices{OrdinarySlice::kLonger});
  recorded.slice.Share(true);
  CHECK(recorded.Take() == Slices{OrdinarySlice::kDefault});
  { const OrdinarySlice::Call call(&recorded.slice); }
  recorded.slice.Keep(false);
  CHECK(recorded.Take().empty());
  recorded.slice.Share(false);
  CHECK(recorded.Take() == Slices{OrdinarySlice::kShort});
}

TEST_CASE("a process that keeps the device has its longer slice through its calls") {
  Recorded recorded;
  recorded.slice.Keep(true);
  CHECK(recorded.TakeUntil(OrdinarySlice::kLonger) == Slices{OrdinarySlice::kLonger});
  { const OrdinarySlice::Call call(&recorded.slice); }
  CHECK(recorded.Take().empty());
  {
    const OrdinarySlice::Call call(&recorded.slice);
    recorded.slice.Keep(false);
    CHECK(recorded.Take().empty());
  }
  CHECK(recorded.TakeUntil(OrdinarySlice::kShort) == Slices{OrdinarySlice::kShort});
}

TEST_CASE("the slice is longer until nobody keeps the device any more") {
  Recorded recorded;
  recorded.slice.Keep(true);
  recorded.slice.Keep(true);
  recorded.slice.Keep(false);
  CHECK(recorded.TakeUntil(OrdinarySlice::kLonger) == Slices{OrdinarySlice::kLonger});
  recorded.slice.Keep(false);
  CHECK(recorded.TakeUntil(OrdinarySlice::kShort) == Slices{OrdinarySlice::kShort});
}

TEST_CASE("keeping the device does not wait for the driver, and the latest wish counts") {
  Recorded recorded;
  recorded.Hold();
  recorded.slice.Keep(true);
  recorded.slice.Keep(false);
  recorded.slice.Keep(true);
  recorded.Go();
  recorded.TakeUntil(OrdinarySlice::kLonger);
  recorded.slice.Keep(false);
  CHECK(recorded.TakeUntil(OrdinarySlice::kShort).back() == OrdinarySlice::kShort);
}

TEST_CASE("a call of a process that shares its GPU with no other does nothing") {
  const OrdinarySlice::Call call(nullptr);
}

}  // namespace
}  // namespace detshare::cuda
