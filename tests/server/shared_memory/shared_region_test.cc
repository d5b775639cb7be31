#include "server/shared_memory/shared_region.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "server/base/remove_tree.h"
#include "tests/server/shared_memory/unnamed_file.h"

namespace detshare {
namespace {

// Below the place where Linux puts libraries, and usable with every sanitizer.
constexpr uint64_t kWindow = 0x7EA000000000;
constexpr uint64_t kWindowBytes = uint64_t{1} << 30;

struct Directory {
  Directory() {
    char pattern[] = "/dev/shm/detshare-test-XXXXXX";
    path = mkdtemp(pattern);
  }
  ~Directory() { RemoveTree(path); }
  std::string path;
};

Owner Me() { return {getuid(), getgid()}; }

TEST_CASE("The session file describes itself and belongs to its owner alone") {
  Directory directory;
  auto region = SharedRegion::Create(directory.path + "/session", RegionSizes(), Me());
  REQUIRE(region.ok());
  struct stat status;
  REQUIRE(stat((directory.path + "/session").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
  CHECK(static_cast<uint64_t>(status.st_size) == (*region)->file_bytes());
  const SessionHeader& header = *(*region)->header();
  CHECK(header.magic == kSessionMagic);
  CHECK(header.abi_version == kAbiVersion);
  CHECK(header.file_bytes == (*region)->file_bytes());
  CHECK(header.ring_offset % kPageBytes == 0);
  CHECK(header.fence_offset % kPageBytes == 0);
  CHECK(header.staging_offset % kPageBytes == 0);
  CHECK(header.staging_offset + header.staging_bytes <= header.file_bytes);
  // The GPU reaches all fences and all of the staging area, in two parts.
  const std::span<uint8_t> first = (*region)->device_part(), late = (*region)->late_part();
  CHECK(first.data() + first.size() == late.data());
  CHECK(late.data() == (*region)->staging() + (*region)->first_staging());
  CHECK(late.data() + late.size() ==
        reinterpret_cast<uint8_t*>((*region)->header()) + (*region)->file_bytes());
  CHECK((*region)->device_part().data() == reinterpret_cast<uint8_t*>((*region)->fences()));
  CHECK((*region)->device_part().size() % kPageBytes == 0);
  CHECK_FALSE((*region)->damaged());
}

TEST_CASE("An existing file is never taken over") {
  Directory directory;
  REQUIRE(symlink("/etc/hostname", (directory.path + "/session").c_str()) == 0);
  CHECK_FALSE(SharedRegion::Create(directory.path + "/session", RegionSizes(), Me()).ok());
}

TEST_CASE("A file for which there is no space is an error and leaves nothing behind") {
  Directory directory;
  auto file = MappedFile::Create(directory.path + "/huge", uint64_t{1} << 50, 0, Me());
  CHECK_FALSE(file.ok());
  CHECK(std::filesystem::is_empty(directory.path));
}

TEST_CASE("The session file's space is allocated in slices, the first part at once") {
  Directory directory;
  const std::string path = directory.path + "/session";
  auto region = SharedRegion::Create(path, RegionSizes(), Me());
  REQUIRE(region.ok());
  const auto allocated = [&] {
    struct stat status;
    REQUIRE(stat(path.c_str(), &status) == 0);
    return static_cast<uint64_t>(status.st_blocks) * 512;
  };
  const uint64_t all = (*region)->file_bytes();
  const uint64_t late = (*region)->late_part().size();
  REQUIRE(late > 0);
  CHECK(allocated() >= all - late);
  CHECK(allocated() < all);
  CHECK_FALSE((*region)->complete());
  int slices = 0;
  while (!(*region)->complete()) {
    REQUIRE((*region)->AllocateSlice().ok());
    ++slices;
  }
  CHECK(slices > 1);
  CHECK(allocated() >= all);
  // A file that is too small for slices exists completely from the start.
  RegionSizes sizes;
  sizes.staging_bytes = kPageBytes;
  auto small = SharedRegion::Create(directory.path + "/small", sizes, Me());
  REQUIRE(small.ok());
  CHECK((*small)->complete());
  CHECK((*small)->late_part().empty());
}

TEST_CASE("A lack of space for later slices is an error at once") {
  Directory directory;
  RegionSizes sizes;
  sizes.staging_bytes = uint64_t{1} << 50;
  auto region = SharedRegion::Create(directory.path + "/session", sizes, Me());
  CHECK(region.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(std::filesystem::is_empty(directory.path));
}

TEST_CASE("A truncated file reads as zeros, and the damage is noticed") {
  Directory directory;
  auto region = SharedRegion::Create(directory.path + "/session", RegionSizes(), Me());
  REQUIRE(region.ok());
  (*region)->staging()[5] = 42;
  REQUIRE(truncate((directory.path + "/session").c_str(), kPageBytes) == 0);
  CHECK_FALSE((*region)->damaged());
  CHECK((*region)->staging()[5] == 0);
  CHECK((*region)->damaged());
  // Writing works, too. Each other page is replaced when it is touched.
  (*region)->fences()[0].store(3);
  (*region)->Reply(0, 1, {});
  std::memset((*region)->staging(), 1, (*region)->sizes().staging_bytes);
}

TEST_CASE("A reply carries its size and what fits the slot, and wakes the waiting client") {
  Directory directory;
  auto region = SharedRegion::Create(directory.path + "/session", RegionSizes(), Me());
  REQUIRE(region.ok());
  ReplySlot& slot = (*region)->replies()[3];
  slot.state.store(kReplyPending);
  slot.waiting.store(1);
  const std::string data(1000, 'x');
  (*region)->Reply(3, 700, {reinterpret_cast<const uint8_t*>(data.data()), data.size()});
  CHECK(slot.state.load() == kReplyDone);
  CHECK(slot.waiting.load() == 0);
  CHECK(slot.result == 700);
  CHECK(slot.bytes == data.size());
  CHECK(slot.data[kReplyDataBytes - 1] == 'x');
  CHECK((*region)->replies()[4].state.load() == kReplyIdle);
}

TEST_CASE("At the end only waiting slots get a reply") {
  Directory directory;
  auto region = SharedRegion::Create(directory.path + "/session", RegionSizes(), Me());
  REQUIRE(region.ok());
  (*region)->replies()[1].state.store(kReplyPending);
  (*region)->ReplyAll(999);
  CHECK((*region)->replies()[0].state.load() == kReplyIdle);
  CHECK((*region)->replies()[1].state.load() == kReplyDone);
  CHECK((*region)->replies()[1].result == 999);
}

TEST_CASE("Text goes around its ring, and what does not fit is refused") {
  Directory directory;
  RegionSizes sizes;
  sizes.output_bytes = 4096;
  auto region = SharedRegion::Create(directory.path + "/session", sizes, Me());
  REQUIRE(region.ok());
  SessionHeader& header = *(*region)->header();
  const std::string text(3000, 'a');
  CHECK((*region)->Print(text));
  CHECK_FALSE((*region)->Print(text));
  CHECK(header.output_tail.load() == 3004);
  header.output_head.store(3004);
  const char* ring = reinterpret_cast<const char*>(&header) + header.output_offset;
  CHECK(std::memcmp(ring, "\xb8\x0b\0\0aa", 6) == 0);
  CHECK((*region)->Print(text, kTextIsError));
  CHECK(std::memcmp(ring + 3004,
                    "\xb8\x0b\0\x80"
                    "aa",
                    6) == 0);
  CHECK(ring[4095] == 'a');
  CHECK(header.output_tail.load() == 6008);
  // A client that claims to have read text which was never written gets nothing more.
  header.output_head.store(UINT64_MAX / 2);
  CHECK_FALSE((*region)->Print("b"));
}

TEST_CASE("Pinned files are at the requested addresses and are reused by size") {
  Directory directory;
  PinnedWindow::Limits limits;
  PinnedWindow window(directory.path, kWindow, kWindowBytes, Me(), limits);
  auto first = window.Allocate(5000);
  auto second = window.Allocate(4096);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(first->address == kWindow);
  CHECK(first->file_bytes == 8192);
  CHECK(first->fresh);
  CHECK(second->address == kWindow + 8192);
  CHECK(second->file != first->file);
  std::memset(reinterpret_cast<void*>(first->address), 7, first->file_bytes);
  struct stat status;
  REQUIRE(stat((directory.path + "/pinned." + std::to_string(first->file)).c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
  CHECK(window.bytes_in_use() == 12288);
  CHECK(window.Find(first->address) != nullptr);
  CHECK(window.Find(first->address + 1) == nullptr);

  CHECK(window.Free(first->address).empty());
  CHECK(window.Find(first->address) == nullptr);
  CHECK(window.bytes_in_use() == 4096);
  auto again = window.Allocate(8000);
  REQUIRE(again.ok());
  CHECK(again->address == first->address);
  CHECK(again->file == first->file);
  CHECK_FALSE(again->fresh);
  CHECK(window.All().size() == 2);
}

TEST_CASE("A client's file is at the wanted address, if that is a free place in the window") {
  Directory directory;
  PinnedWindow window(directory.path, kWindow, kWindowBytes, Me(), PinnedWindow::Limits());
  const UnnamedFile file;
  const auto at = [&](uint64_t wanted) {
    const auto adopted = window.Adopt(file.fd, 4096, 4096, wanted);
    REQUIRE(adopted.ok());
    CHECK(std::memcmp(reinterpret_cast<void*>(adopted->address), "mine", 4) == 0);
    return adopted->address;
  };
  CHECK(at(kWindow + 8192) == kWindow + 8192);
  CHECK(at(kWindow + kWindowBytes - 4096) == kWindow + kWindowBytes - 4096);
  // Taken, not whole pages, and outside of the window in both directions.
  CHECK(at(kWindow + 8192) == kWindow);
  CHECK(at(kWindow + 20481) == kWindow + 4096);
  CHECK(at(kWindow + kWindowBytes) == kWindow + 12288);
  CHECK(at(kWindow - 4096) == kWindow + 16384);
  CHECK(at(UINT64_MAX - 4095) == kWindow + 20480);
  CHECK(at(0) == kWindow + 24576);
}

TEST_CASE("Pinned memory is limited, and large free files are not kept") {
  Directory directory;
  PinnedWindow::Limits limits;
  limits.bytes = 64 * kPageBytes;
  limits.kept_bytes = 8 * kPageBytes;
  limits.files = 4;
  PinnedWindow window(directory.path, kWindow, kWindowBytes, Me(), limits);
  CHECK_FALSE(window.Allocate(65 * kPageBytes).ok());
  CHECK_FALSE(window.Allocate(UINT64_MAX).ok());
  CHECK_FALSE(window.Allocate(0).ok());
  auto large = window.Allocate(32 * kPageBytes);
  auto small = window.Allocate(6 * kPageBytes);
  auto third = window.Allocate(4 * kPageBytes);
  auto fourth = window.Allocate(kPageBytes);
  REQUIRE(fourth.ok());
  CHECK_FALSE(window.Allocate(kPageBytes).ok());  // files
  const std::vector<uint64_t> dropped = window.Free(large->address);
  REQUIRE(dropped == std::vector<uint64_t>{large->address});
  window.Drop(large->address);
  CHECK_FALSE(std::filesystem::exists(directory.path + "/pinned." + std::to_string(large->file)));
  CHECK(window.Free(third->address).empty());
  CHECK(window.Free(small->address) == std::vector<uint64_t>{small->address});
  window.Drop(small->address);
  // The hole is reused.
  auto fifth = window.Allocate(16 * kPageBytes);
  REQUIRE(fifth.ok());
  CHECK(fifth->address == kWindow);
}

TEST_CASE("A truncated pinned file is noticed") {
  Directory directory;
  PinnedWindow window(directory.path, kWindow, kWindowBytes, Me(), {});
  auto allocation = window.Allocate(8192);
  REQUIRE(allocation.ok());
  REQUIRE(truncate((directory.path + "/pinned.0").c_str(), 0) == 0);
  *reinterpret_cast<volatile char*>(allocation->address + 5000) = 1;
  CHECK(window.damaged());
}

TEST_CASE("By default, pinned memory is limited by its window only") {
  Directory directory;
  PinnedWindow window(directory.path, kWindow, 4 * kPageBytes, Me(), {});
  CHECK_FALSE(window.Allocate(5 * kPageBytes).ok());
  REQUIRE(window.Allocate(3 * kPageBytes).ok());
  const absl::Status beyond = window.Allocate(2 * kPageBytes).status();
  CHECK(absl::IsResourceExhausted(beyond));
  CHECK(absl::StrContains(beyond.message(), "limited to 16384 bytes"));
  CHECK(window.Allocate(kPageBytes).ok());
}

TEST_CASE("A pinned file is freed once, and kept files count once") {
  Directory directory;
  PinnedWindow::Limits limits;
  limits.bytes = 8 * kPageBytes;
  limits.kept_bytes = 4 * kPageBytes;
  PinnedWindow window(directory.path, kWindow, kWindowBytes, Me(), limits);
  for (int i = 0; i < 10; ++i) {
    auto first = window.Allocate(4 * kPageBytes);
    REQUIRE(first.ok());
    CHECK(window.bytes_in_use() == 4 * kPageBytes);
    CHECK(window.Free(first->address).empty());
    CHECK(window.Free(first->address).empty());
    CHECK(window.bytes_in_use() == 0);
  }
  CHECK(window.All().size() == 1);
  // Kept files count for the limit.
  CHECK_FALSE(window.Allocate(5 * kPageBytes).ok());
  const std::vector<uint64_t> kept = window.FreeKept();
  REQUIRE(kept.size() == 1);
  window.Drop(kept[0]);
  CHECK(window.FreeKept().empty());
  CHECK(window.Allocate(8 * kPageBytes).ok());
  CHECK_FALSE(window.Allocate(1).ok());
}

TEST_CASE("A dropped file that was in use is not counted") {
  Directory directory;
  PinnedWindow window(directory.path, kWindow, kWindowBytes, Me(), {});
  auto allocation = window.Allocate(kPageBytes);
  REQUIRE(allocation.ok());
  window.Drop(allocation->address);
  CHECK(window.bytes_in_use() == 0);
  CHECK(window.All().empty());
}

TEST_CASE("Text may end exactly at the end of its ring, and may fill the ring") {
  Directory directory;
  RegionSizes sizes;
  sizes.output_bytes = 4096;
  auto region = SharedRegion::Create(directory.path + "/session", sizes, Me());
  REQUIRE(region.ok());
  SessionHeader& header = *(*region)->header();
  const char* ring = reinterpret_cast<const char*>(&header) + header.output_offset;
  CHECK_FALSE((*region)->Print(std::string(4093, 'a')));
  CHECK((*region)->Print(std::string(4092, 'a')));
  CHECK_FALSE((*region)->Print(""));
  CHECK(ring[4095] == 'a');
  header.output_head.store(4096);
  CHECK((*region)->Print(std::string(3996, 'c')));
  header.output_head.store(8096);
  CHECK((*region)->Print(std::string(92, 'd') + std::string(4, 'e')));
  CHECK(ring[3999] == 'c');
  CHECK(ring[4004] == 'd');
  CHECK(ring[4095] == 'd');
  CHECK(ring[0] == 'e');
  CHECK(ring[3] == 'e');
  CHECK(ring[4] == 'c');
  // The length of a piece may go around the end, too.
  header.output_head.store(8196);
  CHECK((*region)->Print(std::string(4086, 'f')));
  header.output_head.store(12286);
  CHECK((*region)->Print("gg"));
  CHECK(std::memcmp(ring + 4094, "\2", 2) == 0);
  CHECK(std::memcmp(ring, "\0\0gg", 4) == 0);
}

TEST_CASE("At the session's end all fences are reached") {
  Directory directory;
  auto region = SharedRegion::Create(directory.path + "/session", RegionSizes(), Me());
  REQUIRE(region.ok());
  (*region)->ForceFences();
  for (uint32_t i = 0; i < (*region)->sizes().fence_count; ++i)
    REQUIRE((*region)->fences()[i].load() == UINT64_MAX);
}

TEST_CASE("A reply changes its own bytes and slot only") {
  Directory directory;
  auto region = SharedRegion::Create(directory.path + "/session", RegionSizes(), Me());
  REQUIRE(region.ok());
  const uint8_t data[] = {1, 2, 3};
  (*region)->Reply(2, 0, data);
  CHECK((*region)->replies()[2].bytes == 3);
  CHECK((*region)->replies()[2].data[2] == 3);
  CHECK((*region)->replies()[2].data[3] == 0);
  CHECK((*region)->replies()[3].state.load() == kReplyIdle);
}

}  // namespace
}  // namespace detshare
