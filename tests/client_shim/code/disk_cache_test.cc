#include "client_shim/code/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace detshare::shim {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLarge = 1 << 20;

struct Folder {
  Folder() {
    char name[] = "/tmp/detshare-cache-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& file : fs::directory_iterator(path)) files.push_back(file.path());
    return files;
  }
  std::string path;
};

std::string ValueOf(const DiskCache& cache, const std::string& key) {
  std::string value;
  return cache.Find(key, &value) ? value : "(nothing)";
}

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteFile(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST_CASE("Another cache of the same directory finds a stored entry") {
  const Folder folder;
  const std::string binary("a\0b\xff", 4);
  DiskCache first(folder.path + "/made/on/demand", kLarge);
  CHECK(ValueOf(first, "key") == "(nothing)");
  first.Store("key", binary);
  first.Store("empty", "");
  const DiskCache second(folder.path + "/made/on/demand", kLarge);
  CHECK(ValueOf(second, "key") == binary);
  CHECK(ValueOf(second, "empty").empty());
  CHECK(ValueOf(second, "other") == "(nothing)");
  CHECK(ValueOf(second, std::string("key\0", 4)) == "(nothing)");
  first.Store("key", "newer");
  CHECK(ValueOf(second, "key") == "newer");
}

TEST_CASE("An entry with a wrong, missing or extra byte is no entry") {
  const Folder folder;
  DiskCache cache(folder.path, kLarge);
  cache.Store("the key", "the value");
  const fs::path file = folder.Files().at(0);
  const std::string good = ReadFile(file);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 0x10;
    WriteFile(file, bad);
    CHECK(ValueOf(cache, "the key") == "(nothing)");
    WriteFile(file, good.substr(0, i));
    CHECK(ValueOf(cache, "the key") == "(nothing)");
  }
  WriteFile(file, good + "x");
  CHECK(ValueOf(cache, "the key") == "(nothing)");
  // Lengths whose sum overflows to the file's length.
  std::string huge = good;
  for (int i = 16; i < 24; ++i) huge[i] = '\xff';
  WriteFile(file, huge);
  CHECK(ValueOf(cache, "the key") == "(nothing)");
  WriteFile(file, good);
  CHECK(ValueOf(cache, "the key") == "the value");
}

TEST_CASE("An entry belongs to its key, whatever its file's name is") {
  const Folder folder;
  DiskCache cache(folder.path, kLarge);
  cache.Store("one", "value");
  const fs::path first = folder.Files().at(0);
  cache.Store("two", "value");
  fs::path second;
  for (const fs::path& file : folder.Files()) {
    if (file != first) second = file;
  }
  fs::copy_file(first, second, fs::copy_options::overwrite_existing);
  CHECK(ValueOf(cache, "two") == "(nothing)");
}

TEST_CASE("Files that other users may write, and anything but files, are not read") {
  const Folder folder;
  DiskCache cache(folder.path, kLarge);
  cache.Store("key", "value");
  const fs::path file = folder.Files().at(0);
  for (const mode_t mode : {0620, 0602}) {
    REQUIRE(chmod(file.c_str(), mode) == 0);
    CHECK(ValueOf(cache, "key") == "(nothing)");
  }
  REQUIRE(chmod(file.c_str(), 0600) == 0);
  CHECK(ValueOf(cache, "key") == "value");
  // Only where the test may give files to another user. A sandbox does not know other users.
  if (geteuid() == 0 && chown(file.c_str(), 12345, 12345) == 0) {
    CHECK(ValueOf(cache, "key") == "(nothing)");
    REQUIRE(chown(file.c_str(), 0, 0) == 0);
  }
  fs::rename(file, folder.path + "/elsewhere");
  fs::create_symlink(folder.path + "/elsewhere", file);
  CHECK(ValueOf(cache, "key") == "(nothing)");
  fs::remove(file);
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  CHECK(ValueOf(cache, "key") == "(nothing)");
  fs::remove(file);
  fs::create_directory(file);
  CHECK(ValueOf(cache, "key") == "(nothing)");
}

TEST_CASE("A directory in which nothing can be stored is an empty cache") {
  const Folder folder;
  WriteFile(folder.path + "/file", "");
  DiskCache cache(folder.path + "/file/below", kLarge);
  cache.Store("key", "value");
  CHECK(ValueOf(cache, "key") == "(nothing)");
  DiskCache nowhere("/proc/nowhere", kLarge);
  nowhere.Store("key", "value");
  CHECK(ValueOf(nowhere, "key") == "(nothing)");
}

TEST_CASE("The least recently used entries are removed first, and the limit holds") {
  const Folder folder;
  constexpr uint64_t kLimit = 10'000;
  DiskCache cache(folder.path, kLimit);
  const std::string value(1000, 'v');
  const auto age = [&](const fs::path& file, time_t seconds) {
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    REQUIRE(utimensat(AT_FDCWD, file.c_str(), times, 0) == 0);
  };
  cache.Store("old but used", value);
  cache.Store("old", value);
  for (const fs::path& file : folder.Files()) age(file, 1'000'000);
  CHECK(ValueOf(cache, "old but used") == value);
  for (int i = 0; i < 50; ++i) {
    cache.Store("new " + std::to_string(i), value);
    CHECK(ValueOf(cache, "new " + std::to_string(i)) == value);
    CHECK(ValueOf(cache, "old but used") == value);
    uint64_t bytes = 0;
    for (const fs::path& file : folder.Files()) bytes += fs::file_size(file);
    CHECK(bytes <= kLimit);
  }
  CHECK(ValueOf(cache, "old") == "(nothing)");
  cache.Store("too large", std::string(kLimit, 'x'));
  CHECK(ValueOf(cache, "too large") == "(nothing)");
  CHECK(ValueOf(cache, "old but used") == value);
}

TEST_CASE("An entry of more than a quarter of the limit is not stored") {
  const Folder folder;
  constexpr uint64_t kQuarter = 1000;
  DiskCache cache(folder.path, 4 * kQuarter);
  cache.Store("k", "");
  const std::string largest(kQuarter - fs::file_size(folder.Files().at(0)), 'v');
  cache.Store("k", largest);
  CHECK(ValueOf(cache, "k") == largest);
  cache.Store("l", largest + "v");
  CHECK(ValueOf(cache, "l") == "(nothing)");
}

TEST_CASE(
    "Unfinished files of dead writers are removed, and those of working or foreign writers stay") {
  const Folder folder;
  WriteFile(folder.path + "/1.0.dead.new.", "half");
  WriteFile(folder.path + "/2.0.alive.new.", "half");
  WriteFile(folder.path + "/notes.txt", "of the user");
  const timespec old[2] = {{1'000'000, 0}, {1'000'000, 0}};
  REQUIRE(utimensat(AT_FDCWD, (folder.path + "/1.0.dead.new.").c_str(), old, 0) == 0);
  REQUIRE(utimensat(AT_FDCWD, (folder.path + "/notes.txt").c_str(), old, 0) == 0);
  DiskCache cache(folder.path, 1000);
  for (int i = 0; i < 20; ++i) cache.Store(std::to_string(i), std::string(100, 'v'));
  CHECK_FALSE(fs::exists(folder.path + "/1.0.dead.new."));
  CHECK(fs::exists(folder.path + "/2.0.alive.new."));
  CHECK(fs::exists(folder.path + "/notes.txt"));
}

TEST_CASE("Processes and threads that write and read the same entries find only whole ones") {
  const Folder folder;
  const auto value_of = [](int key, int writer) {
    return std::string(5000 + 100 * key, static_cast<char>('a' + writer));
  };
  const auto work = [&](int writer) {
    DiskCache cache(folder.path, 60'000);  // less than the entries need, so entries are removed all
                                           // the time
    for (int i = 0; i < 60; ++i) {
      const int key = i % 10;
      cache.Store(std::to_string(key), value_of(key, writer));
      std::string value;
      if (!cache.Find(std::to_string(key), &value)) continue;
      if (value != value_of(key, value[0] - 'a')) return 1;
    }
    return 0;
  };
  std::vector<pid_t> children;
  for (int writer = 0; writer < 4; ++writer) {
    const pid_t child = fork();
    if (child == 0) _exit(work(writer));
    children.push_back(child);
  }
  int wrong[2] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) threads.emplace_back([&, t] { wrong[t] = work(4 + t); });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong[0] + wrong[1] == 0);
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  for (const fs::path& file : folder.Files()) CHECK(file.extension() == ".entry");
}

TEST_CASE("The environment says where the cache is, how large, and whether there is one") {
  const CacheSettings plain = ReadCacheSettings(nullptr, nullptr, nullptr, nullptr, "/home/u");
  CHECK_FALSE(plain.disabled);
  CHECK(plain.directory == "/home/u/.cache/detshare/compile");
  CHECK(plain.limit_bytes == uint64_t{1} << 30);
  CHECK(ReadCacheSettings("0", "4096", nullptr, "/xdg", "/home/u").directory ==
        "/xdg/detshare/compile");
  CHECK(ReadCacheSettings("0", "4096", nullptr, "/xdg", "/home/u").limit_bytes == 4096);
  CHECK(ReadCacheSettings(nullptr, "many", "/cuda", "/xdg", "/home/u").directory ==
        "/cuda/detshare/compile");
  CHECK(ReadCacheSettings(nullptr, "many", nullptr, nullptr, nullptr).limit_bytes == uint64_t{1}
                                                                                         << 30);
  CHECK(ReadCacheSettings(nullptr, nullptr, "relative", "", "").directory.empty());
  CHECK(ReadCacheSettings("1", nullptr, nullptr, nullptr, "/home/u").disabled);
}

}  // namespace
}  // namespace detshare::shim
