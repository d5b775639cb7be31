#include "server/session/long_replies.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>

namespace detshare {
namespace {

TEST_CASE("A long reply is taken once") {
  LongReplies replies;
  REQUIRE(replies.Put(3, "reply"));
  CHECK_FALSE(replies.Take(2).has_value());
  CHECK(replies.Take(3)->body == "reply");
  CHECK_FALSE(replies.Take(3).has_value());
}

TEST_CASE("The next long reply of a slot replaces one that nobody took") {
  LongReplies replies;
  const std::string half(LongReplies::kMaxBytes / 2 + 1, 'x');
  for (int i = 0; i < 4; ++i) REQUIRE(replies.Put(3, half));
  CHECK(replies.Take(3)->body == half);
}

TEST_CASE("A client that leaves too many bytes gets no more long replies until it takes some") {
  LongReplies replies;
  const std::string half(LongReplies::kMaxBytes / 2, 'x');
  REQUIRE(replies.Put(0, half));
  REQUIRE(replies.Put(1, half));
  CHECK_FALSE(replies.Put(2, "y"));
  CHECK_FALSE(replies.Take(2).has_value());
  replies.Take(0);
  CHECK(replies.Put(2, "y"));
}

TEST_CASE("A long reply that was taken counts until it is sent") {
  LongReplies replies;
  REQUIRE(replies.Put(0, std::string(LongReplies::kMaxBytes, 'x')));
  std::optional<LongReplies::Taken> taken = replies.Take(0);
  CHECK_FALSE(replies.Put(0, "y"));
  taken.reset();
  CHECK(replies.Put(0, "y"));
}

}  // namespace
}  // namespace detshare
