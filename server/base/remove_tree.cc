#include "server/base/remove_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/errno_text.h"
#include "server/base/logging.h"

namespace detshare {
namespace {

// A round removes everything, unless others create things meanwhile.
constexpr int kMaxRounds = 100;
// Of all rounds together: more than systemd lets /run have (800,000).
constexpr uint64_t kMaxEntries = uint64_t{1} << 20;

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

// Returns nullptr, and leaves the reason in errno, if `name` is not a directory that can be read.
Directory OpenDirectoryAt(int parent, const char* name) {
  const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return nullptr;
  Directory directory(fdopendir(fd));
  if (directory == nullptr) {
    const int error = errno;
    close(fd);
    errno = error;
  }
  return directory;
}

// Whether the error only says that somebody has put something else there, or has removed it.
bool IsRace(int error) {
  return error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENOTEMPTY ||
         error == EEXIST;
}

// Empties one directory, the top. A directory below it is removed after its own directories have
// moved to the top. So the removal is never more than one level below the top.
class Emptying {
 public:
  // Removes what it finds in `top` but the entry named `except`. Returns whether it found nothing.
  bool Round(DIR* top, absl::string_view except) {
    top_ = dirfd(top);
    error_ = 0;
    changed_ = false;
    bool empty = true;
    rewinddir(top);
    while (const char* const name = Next(top)) {
      if (name == except) continue;
      empty = false;
      if (Remove(top_, name) == Outcome::kFull) EmptyOne(name);
      while (!moved_.empty() && !exhausted()) {
        const std::string next = MovedName(moved_.back());
        moved_.pop_back();
        if (Remove(top_, next.c_str()) == Outcome::kFull) EmptyOne(next.c_str());
      }
    }
    moved_.clear();
    return empty && !exhausted();
  }
  // Whether a further round may find less to remove.
  bool worthwhile() const { return !exhausted() && (changed_ || error_ == 0); }
  // Why something is left.
  std::string Reason() const {
    return error_ != 0
               ? ErrnoText(error_)
               : "it has too much in it, or a program goes on creating files there; end the "
                 "programs that use it, then remove it by hand";
  }

 private:
  enum class Outcome { kDone, kFull, kFailed };

  static std::string MovedName(uint64_t number) { return absl::StrCat(".removing-", number); }
  bool exhausted() const { return entries_ > kMaxEntries; }

  // Returns nullptr after the last entry.
  const char* Next(DIR* directory) {
    while (!exhausted()) {
      const dirent* const entry = readdir(directory);
      if (entry == nullptr) return nullptr;
      const absl::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      ++entries_;
      return entry->d_name;
    }
    return nullptr;
  }

  // Removes the entry, unless it is a directory with something in it: kFull.
  Outcome Remove(int parent, const char* name) {
    if (unlinkat(parent, name, 0) == 0 ||
        (errno == EISDIR && unlinkat(parent, name, AT_REMOVEDIR) == 0) || errno == ENOENT) {
      changed_ = true;
      return Outcome::kDone;
    }
    if (errno == ENOTEMPTY || errno == EEXIST) return Outcome::kFull;
    return Failed();
  }

  Outcome Failed() {
    if (IsRace(errno)) {
      changed_ = true;
    } else {
      error_ = errno;
    }
    return Outcome::kFailed;
  }

  // Removes a directory in the top. Its directories that have something in them move to the top.
  void EmptyOne(const char* name) {
    const Directory directory = OpenDirectoryAt(top_, name);
    if (directory == nullptr) {
      Failed();
      return;
    }
    const int fd = dirfd(directory.get());
    while (const char* const below = Next(directory.get())) {
      if (Remove(fd, below) != Outcome::kFull) continue;
      const uint64_t number = next_++;
      // Somebody may have taken the name. The next round tries another one.
      if (renameat(fd, below, top_, MovedName(number).c_str()) != 0) {
        Failed();
        continue;
      }
      changed_ = true;
      moved_.push_back(number);
    }
    if (Remove(top_, name) == Outcome::kFull) changed_ = true;  // the next round tries again
  }

  int top_ = -1;
  std::vector<uint64_t> moved_;  // directories that wait in the top
  uint64_t next_ = 0, entries_ = 0;
  int error_ = 0;         // of this round, other than a race
  bool changed_ = false;  // something, in this round
};

absl::Status NotRemoved(const std::string& path, const std::string& reason) {
  return absl::InternalError(absl::StrCat("cannot remove ", path, ": ", reason));
}

}  // namespace

absl::Status TryRemoveTree(const std::string& path) {
  // With a slash at its end, a link would be followed.
  std::string name = path;
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  Emptying emptying;
  for (int i = 0; i < kMaxRounds && emptying.worthwhile(); ++i) {
    const Directory top = OpenDirectoryAt(AT_FDCWD, name.c_str());
    if (top == nullptr && errno == ENOENT) return absl::OkStatus();
    if (top == nullptr && errno != ENOTDIR && errno != ELOOP)
      return NotRemoved(path, ErrnoText(errno));
    if (top != nullptr) emptying.Round(top.get(), "");
    if ((top != nullptr ? rmdir(name.c_str()) : unlink(name.c_str())) == 0 || errno == ENOENT)
      return absl::OkStatus();
    if (errno != EISDIR && !IsRace(errno)) return NotRemoved(path, ErrnoText(errno));
  }
  return NotRemoved(path, emptying.Reason());
}

void RemoveTree(const std::string& path) {
  if (const absl::Status removed = TryRemoveTree(path); !removed.ok())
    LogWarning(std::string(removed.message()));
}

absl::Status TryRemoveContents(int directory_fd, const std::string& except) {
  // A descriptor of its own: the other one's position belongs to the caller.
  const Directory top = OpenDirectoryAt(directory_fd, ".");
  constexpr char kWhat[] = "everything in the directory";
  if (top == nullptr) return NotRemoved(kWhat, ErrnoText(errno));
  Emptying emptying;
  for (int i = 0; i < kMaxRounds && emptying.worthwhile(); ++i) {
    if (emptying.Round(top.get(), except)) return absl::OkStatus();
  }
  return NotRemoved(kWhat, emptying.Reason());
}

}  // namespace detshare
