// The cache in which NVRTC keeps what it has compiled: in memory, and on disk for the processes
// that come later.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "client_shim/code/disk_cache.h"

namespace detshare::shim {

// Any thread.
class CompileCache {
 public:
  // Keeps up to limit_bytes in memory. `disk`: null, or outlives the cache.
  explicit CompileCache(size_t limit_bytes, DiskCache* disk = nullptr)
      : limit_bytes_(limit_bytes), disk_(disk) {}

  // One place in the cache: what a handle of NVRTC's stands for.
  struct Entry {
    std::string key;
  };
  // Never null; ended by Close.
  Entry* Open(std::string key);
  void Close(Entry* entry);

  // A copy that the caller frees with free(). False when there is nothing.
  bool Find(const Entry& entry, void** data, size_t* bytes);
  // Replaces what was there. What would make the cache larger than its limit, keys included, is
  // not kept in memory.
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
