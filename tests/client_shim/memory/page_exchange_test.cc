#include "client_shim/memory/page_exchange.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

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

// Whether this process may stop writes into pages.
bool MayStopWrites() {
  long fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
  if (fd >= 0) close(static_cast<int>(fd));
  return fd >= 0;
}

TEST_CASE("What other threads write while pages are exchanged is not lost") {
  if (!MayStopWrites()) {
    WARN("this kernel allows no userfaultfd(2): not tested");
    return;
  }
  constexpr uint64_t kPages = 4, kBytes = kPages * kPageBytes;
  std::byte* const pages = MapPages(kPages, MAP_PRIVATE);
  // One counter in each page. Its writer adds to it with ordinary writes.
  const auto counter = [&](uint64_t page) {
    return reinterpret_cast<std::atomic<uint64_t>*>(pages + page * kPageBytes + 64);
  };
  std::atomic<bool> stop{false};
  std::array<uint64_t, kPages> written{}, lost{};
  std::vector<std::thread> writers;
  for (uint64_t page = 0; page < kPages; ++page) {
    writers.emplace_back([&, page] {
      while (!stop) {
        if (counter(page)->load() != written[page]) ++lost[page];
        counter(page)->store(++written[page]);
      }
    });
  }
  // To pages of a file as registered memory has them, and back.
  bool exchanged = true;
  for (int round = 0; round < 1000 && exchanged; ++round) {
    std::byte* const others = MapPages(kPages, round % 2 == 0 ? MAP_SHARED : MAP_PRIVATE);
    exchanged = CopyAndExchange(reinterpret_cast<uint64_t>(pages), others, kBytes);
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  CHECK(exchanged);
  for (uint64_t page = 0; page < kPages; ++page) {
    CHECK(written[page] > 0);
    CHECK(lost[page] == 0);
    CHECK(counter(page)->load() == written[page]);
  }
  munmap(pages, kBytes);
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
