#include "client_shim/code/compile_cache.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace detshare::shim {
namespace {

std::string Contents(CompileCache& cache, const CompileCache::Entry& entry) {
  void* data;
  size_t bytes;
  if (!cache.Find(entry, &data, &bytes)) return "(nothing)";
  std::string contents(static_cast<const char*>(data), bytes);
  free(data);
  return contents;
}

TEST_CASE("Another handle of a key finds the stored value") {
  CompileCache cache(1000);
  CompileCache::Entry* first = cache.Open("key");
  CompileCache::Entry* second = cache.Open("key");
  CHECK(Contents(cache, *second) == "(nothing)");
  cache.Store(*first, "code", 4);
  cache.Close(first);
  CHECK(Contents(cache, *second) == "code");
  cache.Store(*second, "newer", 5);
  CHECK(Contents(cache, *second) == "newer");
  cache.Close(second);
}

TEST_CASE("Nothing is found under another key") {
  CompileCache cache(1000);
  CompileCache::Entry* first = cache.Open("key");
  CompileCache::Entry* other = cache.Open(std::string("key\0", 4));
  cache.Store(*first, "code", 4);
  CHECK(Contents(cache, *other) == "(nothing)");
  cache.Close(first);
  cache.Close(other);
}

TEST_CASE("The compile cache keeps nothing beyond its limit") {
  CompileCache cache(8);  // two keys of one byte each, and six more
  CompileCache::Entry* first = cache.Open("a");
  CompileCache::Entry* second = cache.Open("b");
  cache.Store(*first, "1234", 4);
  cache.Store(*second, "567", 3);
  CHECK(Contents(cache, *first) == "1234");
  CHECK(Contents(cache, *second) == "(nothing)");
  cache.Store(*first, "12", 2);
  cache.Store(*second, "567", 3);
  CHECK(Contents(cache, *second) == "567");
  cache.Close(first);
  cache.Close(second);
}

TEST_CASE("Threads may use the compile cache at the same time") {
  CompileCache cache(1 << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache] {
      for (int i = 0; i < 200; ++i) {
        CompileCache::Entry* entry = cache.Open(std::to_string(i % 10));
        cache.Store(*entry, "0123456789", 10);
        const std::string contents = Contents(cache, *entry);
        if (contents != "0123456789") std::abort();
        cache.Close(entry);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("The next process finds what one process compiled") {
  char folder[] = "/tmp/detshare-cache-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  {
    DiskCache disk(folder, 1 << 20);
    CompileCache cache(1000, &disk);
    CompileCache::Entry* entry = cache.Open("key");
    cache.Store(*entry, "code", 4);
    cache.Close(entry);
  }
  DiskCache disk(folder, 1 << 20);
  CompileCache cache(1000, &disk);
  CompileCache::Entry* entry = cache.Open("key");
  CHECK(Contents(cache, *entry) == "code");
  std::filesystem::remove_all(folder);
  CHECK(Contents(cache, *entry) == "code");  // from memory
  cache.Close(entry);
}

}  // namespace
}  // namespace detshare::shim
