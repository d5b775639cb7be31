#include "client_shim/memory/page_exchange.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "proto/ring_abi.h"

namespace detshare::shim {
namespace {

std::byte* MapPages(uint64_t count, int flags) {
  void* const pages =
      mmap(nullptr, count * kPageBytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  REQUIRE(pages != MAP_FAILED);
  return static_cast<std::byte*>(pages);
}

TEST_CASE("Other pages with the same contents take the place of pages") {
  for (const uint64_t count : {1, 2, 3, 7}) {
    std::byte* const pages = MapPages(count, MAP_PRIVATE);
    std::byte* const others = MapPages(count, MAP_SHARED);
    // With a size of 0, mremap(2) maps shared pages a second time.
    void* const moved = mremap(others, 0, count * kPageBytes, MREMAP_MAYMOVE);
    REQUIRE(moved != MAP_FAILED);
    for (uint64_t i = 0; i < count; ++i) std::memset(pages + i * kPageBytes, 10 + i, kPageBytes);
    REQUIRE(CopyAndExchange(reinterpret_cast<uint64_t>(pages), static_cast<std::byte*>(moved),
                            count * kPageBytes));
    for (uint64_t i = 0; i < count; ++i) {
      CHECK(pages[i * kPageBytes] == std::byte(10 + i));
      CHECK(others[(i + 1) * kPageBytes - 1] == std::byte(10 + i));
      others[i * kPageBytes] = std::byte{99};
      CHECK(pages[i * kPageBytes] == std::byte{99});
    }
    munmap(pages, count * kPageBytes);
    munmap(others, count * kPageBytes);
  }
}

// Sanitizers watch the stack, which the exchange copies as a whole.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("The pages of the running frames can be exchanged") {
  volatile int variable = 7;
  const uint64_t page = reinterpret_cast<uint64_t>(&variable) / kPageBytes * kPageBytes;
  // The page of this frame, and those below it with the frames of the call.
  const uint64_t bytes = 4 * kPageBytes, from = page - 3 * kPageBytes;
  volatile char deeper[4 * kPageBytes];  // these pages are there
  for (uint64_t i = 0; i < sizeof(deeper); i += kPageBytes) deeper[i] = 1;
  std::byte* const others = MapPages(4, MAP_SHARED);
  void* const moved = mremap(others, 0, bytes, MREMAP_MAYMOVE);
  REQUIRE(moved != MAP_FAILED);
  const bool exchanged = CopyAndExchange(from, static_cast<std::byte*>(moved), bytes);
  REQUIRE(exchanged);
  CHECK(variable == 7);
  auto* const other =
      reinterpret_cast<volatile int*>(others + (reinterpret_cast<uint64_t>(&variable) - from));
  *other = 8;
  CHECK(variable == 8);
  // The frames of other tests get ordinary memory again.
  CHECK(CopyAndExchange(from, MapPages(4, MAP_PRIVATE), bytes));
  CHECK(variable == 8);
  munmap(others, bytes);
}
#endif

}  // namespace
}  // namespace detshare::shim
