#include "coroutine_runtime/fresh_address.h"

#include <catch2/catch.hpp>
#include <cstdint>

namespace detshare {
namespace {

constexpr uint64_t kWindow = uint64_t{4} << 40, kPlace = 2 << 20;

uint64_t Next(uint64_t bytes) { return reinterpret_cast<uint64_t>(FreshAddress(bytes)); }

TEST_CASE("Fresh addresses are in the window, and each is behind the memory before it") {
  uint64_t before = Next(1);
  for (const uint64_t bytes : {uint64_t{1}, kPlace, kPlace + 1, uint64_t{1} << 30}) {
    const uint64_t address = Next(bytes);
    CHECK(address % kPlace == 0);
    CHECK(address >= fresh_window_base);
    CHECK(address < fresh_window_base + kWindow);
    // The window may have begun anew.
    CHECK((address > before || before > fresh_window_base + kWindow / 2));
    const uint64_t next = Next(1);
    CHECK((next - address) % kWindow == (bytes + kPlace - 1) / kPlace * kPlace);
    before = next;
  }
}

TEST_CASE("Fresh addresses begin anew behind the last one") {
  const uint64_t first = Next(kWindow - kPlace);
  Next(kPlace);
  CHECK(Next(1) == first);
}

TEST_CASE("The first fresh address is not the window's") {
  CHECK(Next(kWindow) != fresh_window_base);
}

TEST_CASE("Fresh pages are filled with zeroes and can be written") {
  const FreshPages pages = MapFreshPages(4096);
  REQUIRE(pages != nullptr);
  auto* const words = static_cast<uint64_t*>(pages.get());
  CHECK(words[511] == 0);
  words[511] = 1;
  CHECK(words[511] == 1);
}

}  // namespace
}  // namespace detshare
