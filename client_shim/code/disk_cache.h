// A cache on disk: values by key, in files of a directory that all processes of a user share.
//
// An entry is one file, which is named by the hash of its key:
//
//     magic | bytes of key | bytes of value | SHA-256 of what follows | key | value
//
// A process writes an entry under another name and renames it, so that no process reads half of
// one. The last writer of a key wins. An entry is valid if it is a regular file of this user, if no
// other user may write to it, and if its lengths, hash and key are right. Anything else counts as
// absent. All failures are silent: a cache that cannot be used behaves like an empty one.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace detshare::shim {

// Any thread, any number of processes.
class DiskCache {
 public:
  // Makes `directory` (an absolute path) and its parents at the first Store. The entries of all
  // processes together stay near limit_bytes: entries that were unused for the longest time are
  // removed first.
  DiskCache(std::string directory, uint64_t limit_bytes);

  // Returns false if there is no such entry.
  bool Find(std::string_view key, std::string* value) const;
  // Does not store an entry that is larger than a quarter of the limit.
  void Store(std::string_view key, std::string_view value);

 private:
  std::string PathOf(std::string_view key) const;
  void MakeRoom();

  const std::string directory_;
  const uint64_t limit_bytes_;
  std::mutex mutex_;        // guards the rest
  bool looked_ = false;     // bytes_ is known
  uint64_t bytes_ = 0;      // bytes in the directory, as far as this process knows
  uint64_t next_name_ = 0;  // for the names of files that are being written
};

// The place and the size of the shim's caches, from the environment:
//   CUDA_CACHE_DISABLE  not 0: nothing is cached
//   CUDA_CACHE_MAXSIZE  bytes, else 1 GiB
//   CUDA_CACHE_PATH     the folder for caches, else $XDG_CACHE_HOME, else $HOME/.cache
// The directory is `detshare/compile` in that folder. It is empty if there is no such folder.
struct CacheSettings {
  bool disabled = false;
  std::string directory;
  uint64_t limit_bytes = uint64_t{1} << 30;
};
// Takes the values of these variables; null if a variable is not set.
CacheSettings ReadCacheSettings(const char* disable, const char* max_size, const char* path,
                                const char* xdg_cache_home, const char* home);

}  // namespace detshare::shim
