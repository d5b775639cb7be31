// The cache in which NVRTC keeps what it has compiled. Natively it is on disk; here it lives as
// long as the process.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace detshare::shim {

// Any thread.
class CompileCache {
 public:
  explicit CompileCache(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // One place in the cache: what a handle of NVRTC's stands for.
  struct Entry {
    std::string key;
  };
  // Never null; ended by Close.
  Entry* Open(std::string key);
  void Close(Entry* entry);

  // A copy that the caller frees with free(). False when there is nothing.
  bool Find(const Entry& entry, void** data, size_t* bytes) const;
  // Replaces what was there. What would make the cache larger than its limit, keys included, is
  // not kept.
  void Store(const Entry& entry, const void* data, size_t bytes);

 private:
  const size_t limit_bytes_;
  mutable std::mutex mutex_;  // guards the rest
  std::map<std::string, std::string, std::less<>> contents_;
  size_t bytes_ = 0;
};

}  // namespace detshare::shim
