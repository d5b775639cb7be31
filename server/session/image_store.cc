#include "server/session/image_store.h"

#include <pthread.h>

#include <algorithm>

namespace detshare {
namespace {

// Bounds the images that wait to be hashed. The store's limit does not count them.
constexpr uint64_t kMaxWaitingBytes = uint64_t{512} << 20;

}  // namespace

ImageStore::ImageStore(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {
  if (limit_bytes_ != 0) thread_ = std::thread([this] { Run(); });
}

ImageStore::~ImageStore() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

bool ImageStore::MayHave(uid_t user, const ContentHash& sketch) const {
  const MutexLock lock(&mutex_);
  return sketches_.contains(Key(user, sketch));
}

std::optional<StoredImage> ImageStore::Find(uid_t user, const ContentHash& hash) {
  const MutexLock lock(&mutex_);
  const auto found = by_hash_.find(Key(user, hash));
  if (found == by_hash_.end()) return std::nullopt;
  entries_.splice(entries_.end(), entries_, found->second);
  return found->second->image;
}

void ImageStore::AddSoon(uid_t user, StoredImage image) {
  // One image may fill at most half of the store, so that there is room for the next one.
  if (image.bytes < kSmallestBytes || image.bytes > limit_bytes_ / 2) return;
  {
    const MutexLock lock(&mutex_);
    if (image.bytes > kMaxWaitingBytes - waiting_bytes_) return;
    waiting_bytes_ += image.bytes;
    waiting_.emplace_back(user, std::move(image));
  }
  changed_.SignalAll();
}

void ImageStore::Settle() {
  MutexLock lock(&mutex_);
  changed_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return waiting_.empty() && !busy_;
  });
}

uint64_t ImageStore::bytes() const {
  const MutexLock lock(&mutex_);
  return bytes_;
}

void ImageStore::Run() {
  pthread_setname_np(pthread_self(), "images");
  MutexLock lock(&mutex_);
  for (;;) {
    changed_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !waiting_.empty();
    });
    if (stopping_) return;
    auto [user, image] = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    busy_ = true;
    lock.Unlock();
    const uint64_t bytes = image.bytes;
    Keep(user, std::move(image));
    lock.Lock();
    waiting_bytes_ -= bytes;
    busy_ = false;
    changed_.SignalAll();
  }
}

void ImageStore::Keep(uid_t user, StoredImage image) {
  const std::span<const std::byte> all = image.span();
  Entry entry{Key(user, HashOf(all)), SketchOf({&all, 1}), std::move(image)};
  const MutexLock lock(&mutex_);
  if (by_hash_.contains(entry.key)) return;
  const uint64_t bytes = entry.image.bytes;
  MakeRoom(bytes);
  bytes_ += bytes;
  bytes_of_[user] += bytes;
  ++sketches_[Key(user, entry.sketch)];
  entries_.push_back(std::move(entry));
  by_hash_.emplace(entries_.back().key, std::prev(entries_.end()));
}

// Drops images until `bytes` more bytes fit within the limit.
void ImageStore::MakeRoom(uint64_t bytes) {
  while (bytes_ + bytes > limit_bytes_) {
    const uid_t richest =
        std::max_element(bytes_of_.begin(), bytes_of_.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        })->first;
    const auto oldest = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.key.first == richest;
    });
    const uint64_t freed = oldest->image.bytes;
    bytes_ -= freed;
    if ((bytes_of_[richest] -= freed) == 0) bytes_of_.erase(richest);
    const auto sketch = sketches_.find(Key(richest, oldest->sketch));
    if (--sketch->second == 0) sketches_.erase(sketch);
    by_hash_.erase(oldest->key);
    entries_.erase(oldest);
  }
}

}  // namespace detshare
