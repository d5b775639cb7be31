#include "server/shared_memory/client_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "coroutine_runtime/status_cuda.h"
#include "tests/server/shared_memory/unnamed_file.h"

namespace detshare {
namespace {

constexpr uint64_t kBytes = UnnamedFile::kBytes;

bool Refused(const ClientMapping& mapping, uint64_t bytes = kBytes) {
  const absl::StatusOr<int> found = OpenClientFile(mapping, bytes);
  if (found.ok()) close(*found);
  return CudaResultOf(found.status()) == kCudaErrorNotSupported;
}

TEST_CASE("A file without a name is found by a descriptor that its process has open") {
  UnnamedFile file;
  const absl::StatusOr<int> found = OpenClientFile(file.mapping, kBytes);
  REQUIRE(found.ok());
  CHECK(*found != file.fd);
  char text[5] = {};
  CHECK(pread(*found, text, 4, 4096) == 4);
  CHECK(std::string(text) == "mine");
  // Writable, and the same file.
  CHECK(pwrite(*found, "ours", 4, 4096) == 4);
  CHECK(pread(file.fd, text, 4, 4096) == 4);
  CHECK(std::string(text) == "ours");
  close(*found);
}

TEST_CASE("A descriptor of another file than the client names is refused") {
  UnnamedFile file, other;
  ClientMapping mapping = file.mapping;
  SECTION("another file") { mapping.descriptor = other.fd; }
  SECTION("another inode") { mapping.inode += 1; }
  SECTION("another device") { mapping.device += 1; }
  SECTION("another user's") { mapping.uid += 1; }
  SECTION("none") { mapping.descriptor = -1; }
  SECTION("one that is not open") { mapping.descriptor = 1 << 20; }
  SECTION("the least number") { mapping.descriptor = INT32_MIN; }
  SECTION("of no process") { mapping.pid = 0; }
  CHECK(Refused(mapping));
  CHECK(Refused(file.mapping, kBytes + 1));
}

TEST_CASE("A file may end within the last page of the memory") {
  UnnamedFile file;
  REQUIRE(ftruncate(file.fd, 4097) == 0);
  const absl::StatusOr<int> found = OpenClientFile(file.mapping, kBytes);
  REQUIRE(found.ok());
  close(*found);
  REQUIRE(ftruncate(file.fd, 4096) == 0);
  CHECK(Refused(file.mapping));
}

TEST_CASE("Devices, pipes and files on disks are not opened") {
  UnnamedFile file;
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  for (const int fd : {open("/dev/zero", O_RDWR | O_CLOEXEC), ends[0],
                       open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
                       open("/proc/self/status", O_RDONLY | O_CLOEXEC)}) {
    REQUIRE(fd >= 0);
    struct stat what;
    REQUIRE(fstat(fd, &what) == 0);
    ClientMapping mapping = file.mapping;
    mapping.descriptor = fd;
    mapping.device = what.st_dev;
    mapping.inode = what.st_ino;
    mapping.uid = what.st_uid;
    CHECK(Refused(mapping, 0));
    close(fd);
  }
  close(ends[1]);
}

// A file in /dev/shm that only its name leads to.
struct Named {
  Named() {
    char pattern[] = "/dev/shm/detshare-test-XXXXXX";
    fd = mkstemp(pattern);
    REQUIRE(fd >= 0);
    path = pattern;
    REQUIRE(ftruncate(fd, kBytes) == 0);
    struct stat file;
    REQUIRE(fstat(fd, &file) == 0);
    mapping.pid = getpid();
    mapping.uid = geteuid();
    mapping.device = file.st_dev;
    mapping.inode = file.st_ino;
    mapping.name = path.substr(std::string("/dev/shm/").size());
  }
  ~Named() {
    close(fd);
    unlink(path.c_str());
  }
  int fd = -1;
  std::string path;
  ClientMapping mapping;
};

TEST_CASE("A file in /dev/shm is found by its name") {
  Named file;
  const absl::StatusOr<int> found = OpenClientFile(file.mapping, kBytes);
  REQUIRE(found.ok());
  CHECK(pwrite(*found, "ours", 4, 0) == 4);
  close(*found);
  char text[5] = {};
  CHECK(pread(file.fd, text, 4, 0) == 4);
  CHECK(std::string(text) == "ours");
}

TEST_CASE("A name of another file than the client names is refused") {
  Named file, other;
  ClientMapping mapping = file.mapping;
  uint64_t bytes = kBytes;
  SECTION("another file's") { mapping.name = other.mapping.name; }
  SECTION("another inode") { mapping.inode += 1; }
  SECTION("another device") { mapping.device += 1; }
  SECTION("another user's") { mapping.uid += 1; }
  SECTION("a file that is too short") { bytes = kBytes + 1; }
  SECTION("none") { mapping.name.clear(); }
  SECTION("of a process that has ended") { mapping.pid = INT32_MAX; }
  SECTION("of another user's process that the daemon does not see") {
    mapping.pid = 0;
    mapping.uid += 1;
  }
  SECTION("a path") { mapping.name = "../shm/" + mapping.name; }
  SECTION("a path from the root") { mapping.name = file.path; }
  SECTION("one that ends early") { mapping.name += std::string("\0x", 2); }
  SECTION("a link") {
    const std::string link = file.path + "-link";
    REQUIRE(symlink(file.path.c_str(), link.c_str()) == 0);
    mapping.name += "-link";
    CHECK(Refused(mapping));
    unlink(link.c_str());
  }
  CHECK(Refused(mapping, bytes));
}

}  // namespace
}  // namespace detshare
