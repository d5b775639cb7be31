#include "server/engines/engine_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace detshare {
namespace {

TEST_CASE("Another engine reads a page, and cannot change or shorten it") {
  const auto one = *EnginePages::Create();
  const auto other = *EnginePages::Create();
  REQUIRE(other->Add(1234, dup(one->fd())).ok());
  REQUIRE(other->peers().used == 1);
  CHECK(other->peers().peers[0].id == 1234);
  one->own().devices[3].turn.ticket = 77;
  CHECK(other->peers().peers[0].page->devices[3].turn.ticket == 77);

  CHECK(mmap(nullptr, sizeof(EnginePage), PROT_READ | PROT_WRITE, MAP_SHARED, one->fd(), 0) ==
        MAP_FAILED);
  CHECK(ftruncate(one->fd(), 0) != 0);
  CHECK(write(one->fd(), "x", 1) < 0);
  CHECK(mprotect(const_cast<EnginePage*>(other->peers().peers[0].page), sizeof(EnginePage),
                 PROT_READ | PROT_WRITE) != 0);
}

TEST_CASE("Pages of other versions are read as far as they go, and zeroes after that") {
  const auto pages = *EnginePages::Create();
  // More than this version has, and less, in the same place.
  for (const size_t bytes : {sizeof(EnginePage) + 4096, EnginePage::kLeastBytes}) {
    const int page = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const std::vector<char> ones(bytes, 1);
    REQUIRE(write(page, ones.data(), bytes) == static_cast<ssize_t>(bytes));
    REQUIRE(fcntl(page, F_ADD_SEALS,
                  F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    CHECK(IsSealedPage(page));
    REQUIRE(pages->Add(5, page).ok());
    const EnginePage& seen = *pages->peers().peers[0].page;
    CHECK(seen.devices[63].turn.ticket == 0x0101010101010101);
    CHECK(seen.evicted == 0x0101010101010101);
    CHECK(seen.views[63].coroutines[15].id ==
          (bytes > EnginePage::kLeastBytes ? 0x0101010101010101 : 0));
  }
}

TEST_CASE("A page that others could change is refused") {
  const auto pages = *EnginePages::Create();
  const int open_page = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(ftruncate(open_page, sizeof(EnginePage)) == 0);
  CHECK(absl::IsInvalidArgument(pages->Add(5, dup(open_page))));
  // Longer than any, with a part of a page, and of huge pages.
  for (const auto& [flags, bytes] :
       {std::pair(0u, off_t{1} << 40), std::pair(0u, off_t{EnginePage::kLeastBytes + 1}),
        std::pair(unsigned{MFD_HUGETLB}, off_t{2} << 20)}) {
    const int page = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (page < 0 && flags != 0) continue;  // a kernel without huge pages
    REQUIRE(ftruncate(page, bytes) == 0);
    REQUIRE(fcntl(page, F_ADD_SEALS,
                  F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    CHECK(absl::IsInvalidArgument(pages->Add(5, page)));
  }
  const int short_page = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(fcntl(short_page, F_ADD_SEALS,
                F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  CHECK(absl::IsInvalidArgument(pages->Add(5, dup(short_page))));
  CHECK(absl::IsInvalidArgument(pages->Add(5, -1)));
  CHECK(absl::IsInvalidArgument(pages->Add(0, dup(pages->fd()))));
  CHECK(pages->peers().used == 0);
  close(open_page);
  close(short_page);
}

TEST_CASE("Engines that are gone are forgotten, and their places are used again") {
  const auto one = *EnginePages::Create();
  const auto pages = *EnginePages::Create();
  one->own().devices[0].turn.ticket = 5;
  for (pid_t pid = 1; pid <= static_cast<pid_t>(EnginePeers::kMax); ++pid)
    REQUIRE(pages->Add(pid, dup(one->fd())).ok());
  CHECK(absl::IsResourceExhausted(pages->Add(1000, dup(one->fd()))));
  CHECK(pages->Add(17, dup(one->fd())).ok());  // a process that is known
  pages->Keep({{2}, {}});
  CHECK(pages->peers().peers[0].id == 0);
  CHECK(pages->peers().peers[1].id == 2);
  CHECK(pages->peers().peers[0].page->devices[0].turn.ticket == 0);
  CHECK(pages->peers().peers[1].page->devices[0].turn.ticket == 5);
  REQUIRE(pages->Add(1000, dup(one->fd())).ok());
  CHECK(pages->peers().peers[0].id == 1000);
}

}  // namespace
}  // namespace detshare
