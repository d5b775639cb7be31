#include "server/directories.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>

#include "tests/server/test_windows.h"

namespace detshare {
namespace {

TEST_CASE("The runtime directory is the socket's unless it is named") {
  CHECK(RuntimeDirectory("", "/run/detshare/d.sock") == "/run/detshare");
  CHECK(RuntimeDirectory("", "/d.sock") == "/");
  CHECK(RuntimeDirectory("", "d.sock") == ".");
  CHECK(RuntimeDirectory("/run/detshare/", "/run/detshare/d.sock") == "/run/detshare/");
}

TEST_CASE("A runtime directory is one daemon's until its lock goes") {
  TestDirectory directory;
  std::optional<RuntimeLock> first;
  first.emplace();
  REQUIRE(first->Take(directory.path).ok());
  const absl::Status second = RuntimeLock().Take(directory.path);
  CHECK(absl::IsFailedPrecondition(second));
  CHECK_THAT(std::string(second.message()),
             Catch::Contains("another detshared keeps its files in " + directory.path));
  first.reset();
  CHECK(RuntimeLock().Take(directory.path).ok());
  CHECK_THAT(std::string(RuntimeLock().Take(directory.path + "/none").message()),
             Catch::Contains("put the socket into a directory of its own"));
}

}  // namespace
}  // namespace detshare
