#include "client_shim/memory/process_mappings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

namespace detshare::shim {
namespace {

constexpr size_t kPage = 4096;

// Four pages, the first and the last of which are not mapped.
struct Pages {
  Pages() {
    munmap(base, kPage);
    munmap(base + 3 * kPage, kPage);
  }
  ~Pages() { munmap(base, 4 * kPage); }
  uint64_t at(int page) const {
    return reinterpret_cast<uint64_t>(base) + static_cast<uint64_t>(page) * kPage;
  }
  char* const base = static_cast<char*>(
      mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
};

ProcessMappings::Way EachWay() {
  return GENERATE(ProcessMappings::Way::kFastest, ProcessMappings::Way::kText);
}

TEST_CASE("A mapping is found by each of its addresses, and the next one by those before it") {
  ProcessMappings mappings(EachWay());
  const Pages pages;
  REQUIRE(mappings.ok());
  ProcessMapping found;
  for (const uint64_t address : {pages.at(0), pages.at(1), pages.at(2) + kPage - 1}) {
    REQUIRE(mappings.Find(address, &found));
    CHECK(found.begin == pages.at(1));
    CHECK(found.end == pages.at(3));
    CHECK(found.protection == (PROT_READ | PROT_WRITE));
    CHECK_FALSE(found.shared);
    CHECK(found.path.empty());
  }
  REQUIRE(mappings.Find(pages.at(3), &found));
  CHECK(found.begin > pages.at(3));
}

TEST_CASE("Parts of a mapping with other protections are mappings of their own") {
  const Pages pages;
  mprotect(pages.base + 2 * kPage, kPage, PROT_READ);
  ProcessMappings mappings(EachWay());
  ProcessMapping found;
  REQUIRE(mappings.Find(pages.at(1), &found));
  CHECK(found.end == pages.at(2));
  REQUIRE(mappings.Find(pages.at(2), &found));
  CHECK(found.protection == PROT_READ);
  CHECK(found.end == pages.at(3));
}

TEST_CASE("A shared mapping has the file, the offset and the path") {
  const ProcessMappings::Way way = EachWay();
  const std::string name = "/process_mappings_test." + std::to_string(getpid());
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  REQUIRE(file >= 0);
  REQUIRE(ftruncate(file, 3 * kPage) == 0);
  struct stat status;
  REQUIRE(fstat(file, &status) == 0);
  const Pages pages;
  REQUIRE(mmap(pages.base + kPage, 2 * kPage, PROT_READ, MAP_SHARED | MAP_FIXED, file, kPage) !=
          MAP_FAILED);
  close(file);
  const auto find = [&] {
    ProcessMappings mappings(way);
    ProcessMapping found;
    REQUIRE(mappings.Find(pages.at(1), &found));
    return found;
  };
  const ProcessMapping found = find();
  CHECK(found.begin == pages.at(1));
  CHECK(found.end == pages.at(3));
  CHECK(found.shared);
  CHECK(found.protection == PROT_READ);
  CHECK(found.offset == kPage);
  CHECK(found.device == status.st_dev);
  CHECK(found.inode == status.st_ino);
  CHECK(found.path == "/dev/shm" + name);
  shm_unlink(name.c_str());
  CHECK(find().path == "/dev/shm" + name + " (deleted)");
}

TEST_CASE("No mapping ends after the last address") {
  ProcessMappings mappings(EachWay());
  ProcessMapping found;
  CHECK_FALSE(mappings.Find(UINT64_MAX, &found));
}

}  // namespace
}  // namespace detshare::shim
