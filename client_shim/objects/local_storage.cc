#include "client_shim/objects/local_storage.h"

#include <vector>

namespace detshare::shim {

LocalStorage::Entry* LocalStorage::Find(void* key) const {
  auto* entries = entries_.load(std::memory_order_acquire);
  if (entries == nullptr) return nullptr;
  for (uint32_t i = Hash(key), probes = 0; probes < kEntries; ++probes, i = (i + 1) % kEntries) {
    Entry& entry = (*entries)[i];
    void* const found = entry.key.load(std::memory_order_acquire);
    if (found == key) return &entry;
    if (found == nullptr) return nullptr;
  }
  return nullptr;
}

CUresult LocalStorage::Get(void* key, void** value) const {
  const Entry* entry = key == nullptr ? nullptr : Find(key);
  if (entry == nullptr || !entry->present.load(std::memory_order_acquire))
    return CUDA_ERROR_INVALID_HANDLE;
  *value = entry->value.load(std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult LocalStorage::Put(void* key, void* value, Destructor destructor) {
  if (key == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  auto* entries = entries_.load(std::memory_order_relaxed);
  if (entries == nullptr) {
    entries = new std::array<Entry, kEntries>;
    entries_.store(entries, std::memory_order_release);
  }
  for (uint32_t i = Hash(key), probes = 0; probes < kEntries; ++probes, i = (i + 1) % kEntries) {
    Entry& entry = (*entries)[i];
    void* const found = entry.key.load(std::memory_order_relaxed);
    if (found != nullptr && found != key) continue;
    entry.value.store(value, std::memory_order_relaxed);
    entry.destructor = destructor;
    entry.present.store(true, std::memory_order_release);
    if (found == nullptr) entry.key.store(key, std::memory_order_release);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult LocalStorage::Delete(void* key) {
  const std::lock_guard lock(mutex_);
  Entry* entry = key == nullptr ? nullptr : Find(key);
  if (entry == nullptr || !entry->present.load(std::memory_order_relaxed))
    return CUDA_ERROR_INVALID_HANDLE;
  entry->present.store(false, std::memory_order_release);
  return CUDA_SUCCESS;
}

void LocalStorage::Clear(CUcontext context) {
  struct Ended {
    void* key;
    void* value;
    Destructor destructor;
  };
  std::vector<Ended> ended;
  {
    const std::lock_guard lock(mutex_);
    auto* entries = entries_.load(std::memory_order_relaxed);
    if (entries == nullptr) return;
    for (Entry& entry : *entries) {
      if (!entry.present.load(std::memory_order_relaxed)) continue;
      entry.present.store(false, std::memory_order_release);
      ended.push_back({entry.key.load(std::memory_order_relaxed),
                       entry.value.load(std::memory_order_relaxed), entry.destructor});
    }
  }
  for (const Ended& entry : ended) {
    if (entry.destructor != nullptr) entry.destructor(context, entry.key, entry.value);
  }
}

}  // namespace detshare::shim
