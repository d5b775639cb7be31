#include "server/session/long_replies.h"

#include <catch2/catch.hpp>
#include <string>

namespace detshare {
namespace {

TEST_CASE("A long reply is taken once") {
  LongReplies replies;
  REQUIRE(replies.Put(3, "reply"));
  CHECK(replies.Take(2) == std::nullopt);
  CHECK(replies.Take(3) == "reply");
  CHECK(replies.Take(3) == std::nullopt);
}

TEST_CASE("The next long reply of a slot replaces one that nobody took") {
  LongReplies replies;
  const std::string half(LongReplies::kMaxBytes / 2 + 1, 'x');
  for (int i = 0; i < 4; ++i) REQUIRE(replies.Put(3, half));
  CHECK(replies.Take(3) == half);
}

TEST_CASE("A client that leaves too many bytes gets no more long replies until it takes some") {
  LongReplies replies;
  const std::string half(LongReplies::kMaxBytes / 2, 'x');
  REQUIRE(replies.Put(0, half));
  REQUIRE(replies.Put(1, half));
  CHECK_FALSE(replies.Put(2, "y"));
  CHECK(replies.Take(2) == std::nullopt);
  replies.Take(0);
  CHECK(replies.Put(2, "y"));
}

}  // namespace
}  // namespace detshare
