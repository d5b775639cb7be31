#include "server/base/remove_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/server/deep_tree.h"
#include "tests/server/test_windows.h"

namespace detshare {
namespace {

constexpr int kDeep = 3000;

TEST_CASE("Removing a tree does not follow links") {
  TestDirectory directory, elsewhere;
  const std::string path = directory.path + "/s";
  std::filesystem::create_directories(path + "/a/b");
  std::filesystem::create_directory(elsewhere.path + "/kept");
  for (const char* link : {"/link", "/a/link", "/a/b/link"})
    REQUIRE(symlink(elsewhere.path.c_str(), (path + link).c_str()) == 0);
  CHECK(TryRemoveTree(path).ok());
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK(std::filesystem::exists(elsewhere.path + "/kept"));
  // The path itself may be a link.
  REQUIRE(symlink(elsewhere.path.c_str(), path.c_str()) == 0);
  CHECK(TryRemoveTree(path + "/").ok());
  CHECK_FALSE(std::filesystem::is_symlink(path));
  CHECK(std::filesystem::exists(elsewhere.path + "/kept"));
}

TEST_CASE("Removing what does not exist does nothing, and a file is a tree") {
  TestDirectory directory;
  CHECK(TryRemoveTree(directory.path + "/none").ok());
  CHECK(TryRemoveTree(directory.path + "/none/below").ok());
  std::ofstream(directory.path + "/file") << "x";
  CHECK(TryRemoveTree(directory.path + "/file").ok());
  REQUIRE(mkfifo((directory.path + "/fifo").c_str(), 0600) == 0);
  CHECK(TryRemoveTree(directory.path + "/fifo").ok());
  CHECK(std::filesystem::is_empty(directory.path));
}

TEST_CASE("A tree of any depth is removed with two descriptors") {
  TestDirectory directory;
  const std::string path = directory.path + "/s";
  // The removal uses such a name, and an earlier one may have been interrupted.
  std::filesystem::create_directories(path + "/.removing-0/x");
  std::filesystem::create_directories(path + "/.removing-1");
  std::ofstream(path + "/.removing-2") << "x";
  for (const char* top : {"/.removing-0/x", "/.removing-1"})
    REQUIRE(MakeDeepTree(path + top, kDeep) == kDeep);
  const FewDescriptors few(2);
  CHECK(TryRemoveTree(path).ok());
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("A tree of many directories is removed") {
  TestDirectory directory;
  const std::string path = directory.path + "/s";
  for (int i = 0; i < 30; ++i) {
    for (int j = 0; j < 30; ++j) {
      const std::string below = path + "/" + std::to_string(i) + "/" + std::to_string(j);
      std::filesystem::create_directories(below + "/a/b");
      std::ofstream(below + "/a/file") << "x";
    }
  }
  CHECK(TryRemoveTree(path).ok());
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("A directory is emptied but for one entry") {
  TestDirectory directory;
  std::filesystem::create_directories(directory.path + "/kept/below");
  std::filesystem::create_directories(directory.path + "/other/kept/below");
  std::ofstream(directory.path + "/file") << "x";
  const int fd = open(directory.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int i = 0; i < 2; ++i) {
    CHECK(TryRemoveContents(fd, "kept").ok());
    CHECK(std::filesystem::exists(directory.path + "/kept/below"));
    CHECK_FALSE(std::filesystem::exists(directory.path + "/other"));
    CHECK_FALSE(std::filesystem::exists(directory.path + "/file"));
  }
  CHECK(TryRemoveContents(fd, "").ok());
  CHECK(std::filesystem::is_empty(directory.path));
  close(fd);
}

TEST_CASE("A tree that cannot be removed is an error that says why, and stays whole or in part") {
  TestDirectory directory;
  const std::string path = directory.path + "/s";
  std::filesystem::create_directories(path + "/below");
  const absl::Status status = [&] {
    const FewDescriptors none(0);
    return TryRemoveTree(path);
  }();
  CHECK(status.message() == "cannot remove " + path + ": Too many open files");
  CHECK(std::filesystem::exists(path));
  CHECK(TryRemoveTree(path).ok());
}

TEST_CASE("A removal ends while others create and move directories in the tree") {
  TestDirectory directory;
  const std::string path = directory.path + "/s";
  std::atomic<bool> stop = false;
  std::thread client([&] {
    for (int i = 0; !stop; i = (i + 1) % 50) {
      const std::string name = path + "/d" + std::to_string(i);
      mkdir(name.c_str(), 0755);
      mkdir((name + "/below").c_str(), 0755);
      close(open((name + "/below/file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
      rename(name.c_str(), (path + "/d0/moved").c_str());
      [[maybe_unused]] const int made = symlink("..", name.c_str());
    }
  });
  // Each of them succeeds or gives up.
  for (int i = 0; i < 200; ++i) {
    mkdir(path.c_str(), 0755);
    TryRemoveTree(path).IgnoreError();
  }
  stop = true;
  client.join();
  CHECK(TryRemoveTree(path).ok());
  CHECK_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace detshare
