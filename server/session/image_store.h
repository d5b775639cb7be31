// Keeps the images of code that clients sent, so that later processes of the same user need not
// send them again.
//
// An image is found by its SHA-256, and only by the user that sent it. The hash of another user's
// code therefore gives no access to that code. The daemon computes the hash itself and never trusts
// a client's. The store is bounded. When it is full, it drops the least recently used images of the
// user with the most bytes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/content_hash.h"
#include "proto/mutex.h"

namespace detshare {

// An image. It keeps the memory that holds the image alive.
struct StoredImage {
  std::shared_ptr<const std::string> memory;
  size_t bytes = 0;  // the size of the image, which begins at the start of `memory`
  std::span<const std::byte> span() const {
    return std::as_bytes(std::span(memory->data(), bytes));
  }
};

// Threading: any thread.
class ImageStore {
 public:
  // Smaller images are not kept, because sending one costs less than a query.
  static constexpr uint64_t kSmallestBytes = 64 << 10;

  explicit ImageStore(uint64_t limit_bytes);
  ~ImageStore();
  ImageStore(const ImageStore&) = delete;
  ImageStore& operator=(const ImageStore&) = delete;

  // Whether the store has an image of the user with that sketch. When it has none, the client need
  // not compute the full hash.
  bool MayHave(uid_t user, const ContentHash& sketch) const;
  std::optional<StoredImage> Find(uid_t user, const ContentHash& hash);
  // Hashes and stores the image on the store's own thread. Drops the image when too many are
  // waiting.
  void AddSoon(uid_t user, StoredImage image);

  // Waits until all images added so far are stored.
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
  void MakeRoom(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t limit_bytes_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // least recently used first
  std::map<Key, std::list<Entry>::iterator> by_hash_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, int> sketches_ ABSL_GUARDED_BY(mutex_);  // the number of entries with that sketch
  std::map<uid_t, uint64_t> bytes_of_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::pair<uid_t, StoredImage>> waiting_ ABSL_GUARDED_BY(mutex_);
  uint64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace detshare
