// Images of code that clients sent, kept so that the next process of the same user need not send
// them again.
//
// An image is found by its SHA-256, by the user who sent it only: who knows the hash of another
// user's code does not get it. The hash is the daemon's own, never what a client claims. The
// store is bounded; when it is full, the user who has most of it loses what was not used for
// longest.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/content_hash.h"

namespace detshare {

// An image, somewhere in memory that lives as long as this.
struct StoredImage {
  std::shared_ptr<const std::string> memory;
  size_t bytes = 0;  // at its beginning
  std::span<const std::byte> span() const {
    return std::as_bytes(std::span(memory->data(), bytes));
  }
};

// Any thread.
class ImageStore {
 public:
  // Smaller images are not kept: sending them costs less than asking.
  static constexpr uint64_t kSmallestBytes = 64 << 10;

  explicit ImageStore(uint64_t limit_bytes);
  ~ImageStore();
  ImageStore(const ImageStore&) = delete;
  ImageStore& operator=(const ImageStore&) = delete;

  // Whether the user has an image of that sketch. Cheap for the asker: he need not hash for
  // nothing.
  bool MayHave(uid_t user, const ContentHash& sketch) const;
  std::optional<StoredImage> Find(uid_t user, const ContentHash& hash);
  // Hashes it on the store's own thread and keeps it. Dropped when too many wait for that.
  void AddSoon(uid_t user, StoredImage image);

  // Waits until everything that was added so far is kept.
  void Settle();
  uint64_t bytes() const;

 private:
  using Key = std::pair<uid_t, ContentHash>;
  struct Entry {
    Key key;
    ContentHash sketch;
    StoredImage image;
  };

  void Run();
  void Keep(uid_t user, StoredImage image);
  void MakeRoom(uint64_t bytes);

  const uint64_t limit_bytes_;
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::list<Entry> entries_;  // the least recently used first
  std::map<Key, std::list<Entry>::iterator> by_hash_;
  std::map<Key, int> sketches_;  // how many entries have it
  std::map<uid_t, uint64_t> bytes_of_;
  uint64_t bytes_ = 0;
  std::vector<std::pair<uid_t, StoredImage>> waiting_;
  uint64_t waiting_bytes_ = 0;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace detshare
