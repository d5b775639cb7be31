#include "server/access/acceptor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/server/test_windows.h"
#include "tests/server/unix_sockets.h"

namespace detshare {
namespace {

// Returns 0, or the errno of the attempt.
int ErrorOfConnecting(const std::string& path) {
  const int fd = ConnectTo(path);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

TEST_CASE("A client that finds the socket is never refused, however early it comes") {
  TestDirectory directory;
  for (int i = 0; i < 100; ++i) {
    const std::string path = directory.path + "/" + std::to_string(i);
    int error = -1;
    std::thread early([&] {
      struct stat there;
      while (lstat(path.c_str(), &there) != 0) {
      }
      error = ErrorOfConnecting(path);
    });
    const absl::StatusOr<int> listening = ListenOn(path, 0600);
    early.join();
    REQUIRE(listening.ok());
    CHECK(error == 0);
    close(*listening);
  }
}

TEST_CASE("A socket has the requested mode, and leaves nothing beside it") {
  TestDirectory directory;
  const absl::StatusOr<int> listening = ListenOn(directory.path + "/s", 0620);
  REQUIRE(listening.ok());
  struct stat status;
  REQUIRE(stat((directory.path + "/s").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0620);
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory.path))
    ++files;
  CHECK(files == 1);
  close(*listening);
}

TEST_CASE("A dead socket is replaced, and anything else is left alone") {
  TestDirectory directory;
  const std::string path = directory.path + "/s";
  const absl::StatusOr<int> first = ListenOn(path, 0600);
  REQUIRE(first.ok());
  close(*first);
  CHECK(ErrorOfConnecting(path) == ECONNREFUSED);
  const absl::StatusOr<int> second = ListenOn(path, 0600);
  REQUIRE(second.ok());
  CHECK(ErrorOfConnecting(path) == 0);
  close(*second);

  const std::string file = directory.path + "/file";
  std::ofstream(file) << "kept";
  const absl::StatusOr<int> refused = ListenOn(file, 0600);
  CHECK(absl::IsFailedPrecondition(refused.status()));
  CHECK(refused.status().message().find(file) != std::string::npos);
  CHECK(std::filesystem::file_size(file) == 4);

  // A file that has the name under which the socket is made stays, too.
  const std::string beside = directory.path + "/t.new";
  std::ofstream(beside) << "kept";
  const absl::StatusOr<int> hindered = ListenOn(directory.path + "/t", 0600);
  REQUIRE_FALSE(hindered.ok());
  CHECK(hindered.status().message().find(beside) != std::string::npos);
  CHECK(std::filesystem::file_size(beside) == 4);
}

TEST_CASE(
    "A path that is too long for a socket is refused, and the error gives the possible length") {
  TestDirectory directory;
  const std::string longest = directory.path + "/" + std::string(102 - directory.path.size(), 'x');
  const absl::StatusOr<int> listening = ListenOn(longest, 0600);
  REQUIRE(listening.ok());
  CHECK(ErrorOfConnecting(longest) == 0);
  close(*listening);
  const absl::StatusOr<int> refused = ListenOn(longest + "x", 0600);
  CHECK(absl::IsInvalidArgument(refused.status()));
  CHECK(refused.status().message().find("103 characters") != std::string::npos);
}

}  // namespace
}  // namespace detshare
