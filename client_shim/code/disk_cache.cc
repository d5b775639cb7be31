#include "client_shim/code/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "proto/content_hash.h"

namespace detshare::shim {
namespace {

constexpr char kSuffix[] = ".entry";
constexpr char kUnfinished[] = ".new.";
// The writer of a file that has been unfinished for longer than this has died.
constexpr time_t kAbandonedSeconds = 600;
// The share of the limit that is left after entries were removed.
constexpr uint64_t kKeptPercent = 80;

struct EntryHeader {
  char magic[8];
  uint64_t key_bytes;
  uint64_t value_bytes;
  ContentHash hash;  // of key and value
};
constexpr char kMagic[8] = {'D', 'S', 'C', 'A', 'C', 'H', 'E', '1'};

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

EntryHeader HeaderOf(std::string_view key, std::string_view value) {
  EntryHeader header{};
  memcpy(header.magic, kMagic, sizeof(kMagic));
  header.key_bytes = key.size();
  header.value_bytes = value.size();
  header.hash = ContentHasher().Add(Bytes(key)).Add(Bytes(value)).Finish();
  return header;
}

bool EndsWith(std::string_view name, std::string_view end) {
  return name.size() >= end.size() && name.substr(name.size() - end.size()) == end;
}

bool ReadAll(int fd, void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes != 0) {
    const ssize_t more = read(fd, at, bytes);
    if (more <= 0) {
      if (more < 0 && errno == EINTR) continue;
      return false;
    }
    at += more;
    bytes -= static_cast<size_t>(more);
  }
  return true;
}

bool WriteAll(int fd, const void* from, size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes != 0) {
    const ssize_t more = write(fd, at, bytes);
    if (more < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    at += more;
    bytes -= static_cast<size_t>(more);
  }
  return true;
}

bool MakeDirectories(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    if (mkdir(path.substr(0, slash).c_str(), 0700) != 0 && errno != EEXIST) return false;
    if (slash == std::string::npos) return true;
  }
}

bool OwnAndOnlyOursToWrite(const struct stat& status) {
  return S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

DiskCache::DiskCache(std::string directory, uint64_t limit_bytes)
    : directory_(std::move(directory)), limit_bytes_(limit_bytes) {}

std::string DiskCache::PathOf(std::string_view key) const {
  return directory_ + "/" + ToHex(HashOf(Bytes(key))) + kSuffix;
}

bool DiskCache::Find(std::string_view key, std::string* value) const {
  const std::string path = PathOf(key);
  // Not blocking, so that a file which is not a regular file cannot stop the thread.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  struct stat status;
  EntryHeader header;
  std::string found_key;
  const bool readable = fstat(fd, &status) == 0 && OwnAndOnlyOursToWrite(status) &&
                        ReadAll(fd, &header, sizeof(header));
  bool sound = readable && memcmp(header.magic, kMagic, sizeof(kMagic)) == 0 &&
               header.key_bytes == key.size() && header.value_bytes <= limit_bytes_ &&
               static_cast<uint64_t>(status.st_size) ==
                   sizeof(header) + header.key_bytes + header.value_bytes;
  if (sound) {
    found_key.resize(header.key_bytes);
    value->resize(header.value_bytes);
    sound = ReadAll(fd, found_key.data(), found_key.size()) &&
            ReadAll(fd, value->data(), value->size()) && found_key == key &&
            HeaderOf(found_key, *value).hash == header.hash;
  }
  if (sound) {
    // The entry was used just now, so others are removed first.
    const timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    futimens(fd, now);
  }
  close(fd);
  return sound;
}

void DiskCache::Store(std::string_view key, std::string_view value) {
  const uint64_t bytes = sizeof(EntryHeader) + key.size() + value.size();
  if (bytes > limit_bytes_ / 4) return;
  std::string unfinished = directory_ + "/";
  {
    const std::lock_guard lock(mutex_);
    unfinished += std::to_string(getpid()) + "." + std::to_string(next_name_++);
  }
  // Processes of several containers may have the same process id.
  unsigned int random = 0;
  if (getentropy(&random, sizeof(random)) != 0) return;
  unfinished += "." + std::to_string(random) + kUnfinished;
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  int fd = open(unfinished.c_str(), kFlags, 0600);
  if (fd < 0 && errno == ENOENT && MakeDirectories(directory_))
    fd = open(unfinished.c_str(), kFlags, 0600);
  if (fd < 0) return;
  const EntryHeader header = HeaderOf(key, value);
  const bool written = WriteAll(fd, &header, sizeof(header)) &&
                       WriteAll(fd, key.data(), key.size()) &&
                       WriteAll(fd, value.data(), value.size());
  const bool closed = close(fd) == 0;
  if (!written || !closed || rename(unfinished.c_str(), PathOf(key).c_str()) != 0) {
    unlink(unfinished.c_str());
    return;
  }
  const std::lock_guard lock(mutex_);
  bytes_ += bytes;
  if (!looked_ || bytes_ > limit_bytes_) MakeRoom();
}

// Needs mutex_. Counts the bytes of all entries and removes entries above the limit.
void DiskCache::MakeRoom() {
  struct Entry {
    timespec used;
    uint64_t bytes;
    std::string name;
  };
  DIR* const folder = opendir(directory_.c_str());
  if (folder == nullptr) return;
  std::vector<Entry> entries;
  uint64_t total = 0;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  while (const dirent* item = readdir(folder)) {
    const std::string_view name = item->d_name;
    const bool unfinished = EndsWith(name, kUnfinished);
    struct stat status;
    if ((!unfinished && !EndsWith(name, kSuffix)) ||
        fstatat(dirfd(folder), item->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(status.st_mode) || status.st_uid != geteuid()) {
      continue;
    }
    if (unfinished) {
      if (now.tv_sec - status.st_mtim.tv_sec > kAbandonedSeconds)
        unlinkat(dirfd(folder), item->d_name, 0);
      continue;
    }
    entries.push_back({status.st_mtim, static_cast<uint64_t>(status.st_size), std::string(name)});
    total += static_cast<uint64_t>(status.st_size);
  }
  if (total > limit_bytes_) {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
    });
    for (const Entry& entry : entries) {
      if (total <= limit_bytes_ / 100 * kKeptPercent) break;
      if (unlinkat(dirfd(folder), entry.name.c_str(), 0) == 0) total -= entry.bytes;
    }
  }
  closedir(folder);
  looked_ = true;
  bytes_ = total;
}

CacheSettings ReadCacheSettings(const char* disable, const char* max_size, const char* path,
                                const char* xdg_cache_home, const char* home) {
  CacheSettings settings;
  const auto number = [](const char* text, uint64_t* value) {
    if (text == nullptr) return;
    std::from_chars(text, text + strlen(text), *value);
  };
  uint64_t disabled = 0;
  number(disable, &disabled);
  settings.disabled = disabled != 0;
  number(max_size, &settings.limit_bytes);
  // The XDG base directory specification says to ignore relative paths.
  const auto absolute = [](const char* folder) { return folder != nullptr && *folder == '/'; };
  if (absolute(path)) {
    settings.directory = path;
  } else if (absolute(xdg_cache_home)) {
    settings.directory = xdg_cache_home;
  } else if (absolute(home)) {
    settings.directory = std::string(home) + "/.cache";
  } else {
    return settings;
  }
  settings.directory += "/detshare/compile";
  return settings;
}

}  // namespace detshare::shim
