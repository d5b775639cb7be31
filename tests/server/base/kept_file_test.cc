#include "server/base/kept_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/server/test_windows.h"

namespace detshare {
namespace {

TEST_CASE("A kept file is replaced as a whole, and only its user reads it") {
  TestDirectory directory;
  const std::string path = directory.path + "/kept";
  CHECK(absl::IsNotFound(ReadKeptFile(path, 10).status()));
  REQUIRE(WriteKeptFile(path, "first and longer").ok());
  REQUIRE(WriteKeptFile(path, "second").ok());
  CHECK(*ReadKeptFile(path, 10) == "second");
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  REQUIRE(WriteKeptFile(path, "").ok());
  CHECK(ReadKeptFile(path, 10)->empty());
}

TEST_CASE("A kept file that is too long is not read") {
  TestDirectory directory;
  const std::string path = directory.path + "/kept";
  REQUIRE(WriteKeptFile(path, "0123456789").ok());
  CHECK(ReadKeptFile(path, 10).ok());
  CHECK(absl::IsInvalidArgument(ReadKeptFile(path, 9).status()));
}

TEST_CASE("A file that cannot be written leaves the old one, and no other file") {
  TestDirectory directory;
  const std::string path = directory.path + "/kept";
  REQUIRE(WriteKeptFile(path, "old").ok());
  // A link in the new file's place leads nowhere else.
  REQUIRE(symlink("/dev/null", (path + ".new").c_str()) == 0);
  CHECK_FALSE(WriteKeptFile(path, "new").ok());
  CHECK(*ReadKeptFile(path, 10) == "old");
  CHECK_FALSE(WriteKeptFile(directory.path + "/none/kept", "new").ok());
}

}  // namespace
}  // namespace detshare
