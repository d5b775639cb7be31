#include "client_shim/memory/tensor_map_cache.h"

namespace detshare::shim {

uint64_t TensorMapKey::Hash() const {
  uint64_t hash = 0x9E3779B97F4A7C15;
  for (const uint64_t word : words_) {
    hash = (hash ^ word) * 0xD6E8FEB86659FD93;
    hash ^= hash >> 32;
  }
  return hash;
}

bool TensorMapCache::Find(const TensorMapKey& key, TensorMapWords* map) {
  const size_t index = key.Hash() % kEntries;
  const std::lock_guard lock(mutex_);
  if (entries_ == nullptr || !(entries_[index].key == key)) return false;
  *map = entries_[index].map;
  return true;
}

void TensorMapCache::Store(const TensorMapKey& key, const TensorMapWords& map) {
  const size_t index = key.Hash() % kEntries;
  const std::lock_guard lock(mutex_);
  if (entries_ == nullptr) entries_ = std::make_unique<Entry[]>(kEntries);
  entries_[index].key = key;
  entries_[index].map = map;
}

}  // namespace detshare::shim
