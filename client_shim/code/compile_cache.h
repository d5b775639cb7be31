// The cache in which NVRTC keeps the code that it has compiled: in memory, and on disk for later
// processes.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "client_shim/code/disk_cache.h"

namespace detshare::shim {

// Any thread.
class CompileCache {
 public:
  // Keeps up to limit_bytes in memory. `disk` is null or outlives the cache.
  explicit CompileCache(size_t limit_bytes, DiskCache* disk = nullptr)
      : limit_bytes_(limit_bytes), disk_(disk) {}

  // A place in the cache. NVRTC holds a handle to it.
  struct Entry {
    std::string key;
    size_t input_begin = 0;  // where the compiled input begins in the key, of which it is the rest

    std::string_view input() const { return std::string_view(key).substr(input_begin); }
  };
  // Returns an entry that is never null. Close ends it.
  Entry* Open(std::string key, size_t input_begin = 0);
  void Close(Entry* entry);

  // Gives the caller a copy, which the caller frees with free(). Returns false if there is nothing.
  bool Find(const Entry& entry, void** data, size_t* bytes);
  // Replaces the entry's contents. Contents that would make the cache larger than its limit (keys
  // included) are not kept in memory.
  void Store(const Entry& entry, const void* data, size_t bytes);

 private:
  void Remember(const std::string& key, std::string contents);

  const size_t limit_bytes_;
  DiskCache* const disk_;
  std::mutex mutex_;  // guards the rest
  std::map<std::string, std::string, std::less<>> contents_;
  size_t bytes_ = 0;
};

}  // namespace detshare::shim
