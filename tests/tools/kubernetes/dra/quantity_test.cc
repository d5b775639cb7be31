#include "tools/kubernetes/dra/quantity.h"

#include <catch2/catch.hpp>

namespace detshare::kubernetes {
namespace {

TEST_CASE("A quantity is read as Kubernetes reads it, rounded up") {
  const std::pair<const char*, int64_t> quantities[] = {{"0", 0},
                                                        {"1", 1},
                                                        {"+5", 5},
                                                        {"20Gi", 20ll << 30},
                                                        {"1.5Gi", 3 << 29},
                                                        {".5Ki", 512},
                                                        {"1k", 1000},
                                                        {"2M", 2'000'000},
                                                        {"1500m", 2},
                                                        {"1n", 1},
                                                        {"3e3", 3000},
                                                        {"5E-1", 1},
                                                        {"1E", 1'000'000'000'000'000'000},
                                                        {"7Ei", 7ll << 60},
                                                        {"9223372036854775807", INT64_MAX}};
  for (const auto& [text, value] : quantities) {
    INFO(text);
    REQUIRE(ParseQuantity(text).has_value());
    CHECK(*ParseQuantity(text) == value);
  }
}

TEST_CASE("Text that is no quantity of bytes is refused") {
  for (const char* text : {"",
                           "-1",
                           "Gi",
                           ".",
                           "1.2.3",
                           "1 Gi",
                           " 1",
                           "1 ",
                           "1Gib",
                           "1gi",
                           "1K",
                           "0x10",
                           "1e",
                           "1e99",
                           "1e 3",
                           "8Ei",
                           "9223372036854775808",
                           "1e19",
                           "99999999999999999999999999999999999999999",
                           "nan",
                           "inf",
                           "\xff"}) {
    INFO(text);
    CHECK_FALSE(ParseQuantity(text).has_value());
  }
}

TEST_CASE("A quantity is written as the API server writes it") {
  CHECK(BinaryQuantity(0) == "0");
  CHECK(BinaryQuantity(1023) == "1023");
  CHECK(BinaryQuantity(80ll << 30) == "80Gi");
  CHECK(BinaryQuantity((80ll << 30) + (1 << 20)) == "81921Mi");
  for (const int64_t value : {int64_t{1}, int64_t{1} << 40, int64_t{85'520'809'984}})
    CHECK(*ParseQuantity(BinaryQuantity(value)) == value);
}

}  // namespace
}  // namespace detshare::kubernetes
