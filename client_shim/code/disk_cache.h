// Values by key in files of a directory, for all processes of a user at once.
//
// An entry is one file, named by the hash of its key:
//
//     magic | bytes of key | bytes of value | SHA-256 of what follows | key | value
//
// It is written under another name and renamed, so that nobody reads half of one; whoever comes
// last wins. An entry is believed when it is a regular file that belongs to this user, nobody else
// may write to it, and lengths, hash and key are right; anything else counts as absent. Everything
// that fails is silent: a cache that cannot be used is an empty one.
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
  // Makes `directory` (an absolute path) and its parents when something is first stored. Entries of
  // all processes together stay near limit_bytes: those that were not used for longest go first.
  DiskCache(std::string directory, uint64_t limit_bytes);

  // False when there is no such entry.
  bool Find(std::string_view key, std::string* value) const;
  // Nothing is stored that would be larger than a quarter of the limit.
  void Store(std::string_view key, std::string_view value);

 private:
  std::string PathOf(std::string_view key) const;
  void MakeRoom();

  const std::string directory_;
  const uint64_t limit_bytes_;
  std::mutex mutex_;        // guards the rest
  bool looked_ = false;     // bytes_ is known
  uint64_t bytes_ = 0;      // in the directory, as far as this process knows
  uint64_t next_name_ = 0;  // of files that are being written
};

// Where and how large the caches of the shim are, by the environment:
//   CUDA_CACHE_DISABLE  not 0: nothing is cached
//   CUDA_CACHE_MAXSIZE  bytes, else 1 GiB
//   CUDA_CACHE_PATH     the folder for caches, else $XDG_CACHE_HOME, else $HOME/.cache
// The directory is `detshare/compile` in there; empty when there is no place.
struct CacheSettings {
  bool disabled = false;
  std::string directory;
  uint64_t limit_bytes = uint64_t{1} << 30;
};
// Arguments: the values of these variables, null when not set.
CacheSettings ReadCacheSettings(const char* disable, const char* max_size, const char* path,
                                const char* xdg_cache_home, const char* home);

}  // namespace detshare::shim
