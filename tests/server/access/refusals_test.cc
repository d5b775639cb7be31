#include "server/access/refusals.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <string>

namespace detshare {
namespace {

using std::chrono::seconds;

constexpr ConnectionHolder kUser{false, 7}, kEndpoint{true, 7};

// As long after the first refusal.
Refusals::Clock::time_point After(seconds time) { return Refusals::Clock::time_point(time); }

TEST_CASE("A holder's refusals for one reason are told once in a while, with the number between") {
  Refusals refusals;
  CHECK(refusals.Note(kUser, "no", After(seconds(0))) == "no");
  for (int i = 0; i < 4200; ++i) CHECK_FALSE(refusals.Note(kUser, "no", After(seconds(9))));
  // Others are told of at once.
  CHECK(refusals.Note(kEndpoint, "no", After(seconds(9))) == "no");
  CHECK(refusals.Note(kUser, "never", After(seconds(9))) == "never");
  CHECK(refusals.Note(kUser, "no", After(seconds(10))) ==
        "no (4200 refusals before this one were only counted)");
  CHECK_FALSE(refusals.Note(kUser, "no", After(seconds(11))));
  CHECK(refusals.Note(kUser, "no", After(seconds(20))) ==
        "no (1 refusal before this one was only counted)");
  CHECK(refusals.Note(kUser, "no", After(seconds(90))) == "no");
}

TEST_CASE(
    "Neither many reasons nor many users make many events, and both are told of again later") {
  Refusals refusals;
  const auto told = [&](seconds time, uint64_t users, int reasons) {
    size_t count = 0;
    for (uint64_t user = 0; user < users; ++user) {
      for (int reason = 0; reason < reasons; ++reason)
        count += refusals.Note({false, user}, std::to_string(reason), After(time)).has_value();
    }
    return count;
  };
  CHECK(told(seconds(0), 1, 100) == Refusals::kMaxReasons + 1);
  CHECK(told(seconds(0), 100, 1) == Refusals::kMaxHolders);  // one user was told of
  CHECK(told(seconds(9), 100, 100) == (Refusals::kMaxHolders - 1) * Refusals::kMaxReasons);
  // Those of long ago make room.
  CHECK(refusals.Note({false, 99}, "new", After(seconds(30))) == "new");
  CHECK(refusals.Note({false, 0}, "new", After(seconds(30))) == "new");
}

}  // namespace
}  // namespace detshare
