#include "client_shim/base/log_ring.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "client_shim/base/log.h"

namespace detshare::shim {
namespace {

std::string LineOf(uint32_t number) {
  char line[LogRing::kLineBytes];
  return std::string(line, log_ring().Get(number, line));
}

TEST_CASE("Errors and warnings are kept, other lines are not") {
  const uint32_t begin = log_ring().next();
  Log(LogLevel::kError, "an error of %d", 7);
  Log(LogLevel::kInfo, "news");
  Log(LogLevel::kWarning, "a warning");
  REQUIRE(log_ring().next() == begin + 2);
  CHECK(LineOf(begin).find("][E] an error of 7") != std::string::npos);
  CHECK(LineOf(begin + 1).find("][W] a warning") != std::string::npos);
  CHECK(LineOf(begin + 2).empty());
}

TEST_CASE("The oldest lines give way to new ones, and long lines are cut") {
  for (uint32_t i = 0; i < LogRing::kLines; ++i) Log(LogLevel::kWarning, "filler");
  const uint32_t begin = log_ring().next();
  const std::string text(2 * LogRing::kLineBytes, 'x');
  for (uint32_t i = 0; i < LogRing::kLines; ++i) Log(LogLevel::kWarning, "%s", text.c_str());
  CHECK(log_ring().OldestFrom(begin - 5) == begin);
  CHECK(LineOf(begin - 1).empty());
  CHECK(LineOf(begin).size() == LogRing::kLineBytes - 1);
}

TEST_CASE("A listener gets every kept line until another listener replaces it") {
  static int received;
  received = 0;
  log_ring().SetListener([](LogLevel, const char* line, size_t length) {
    CHECK(strlen(line) == length);
    ++received;
  });
  Log(LogLevel::kError, "one");
  Log(LogLevel::kDebug, "not this");
  log_ring().SetListener(nullptr);
  Log(LogLevel::kError, "two");
  CHECK(received == 1);
}

}  // namespace
}  // namespace detshare::shim
