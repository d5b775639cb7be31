// What CUDA runtimes and libraries keep with a context, by key. Read at nearly every call of
// theirs: reading is lock-free.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

class LocalStorage {
 public:
  using Destructor = void (*)(CUcontext context, void* key, void* value);

  LocalStorage() = default;
  ~LocalStorage() { delete entries_.load(std::memory_order_relaxed); }
  LocalStorage(const LocalStorage&) = delete;
  LocalStorage& operator=(const LocalStorage&) = delete;

  // Any thread. Null key or a full store: CUDA_ERROR_INVALID_VALUE or CUDA_ERROR_OUT_OF_MEMORY.
  // Replaces a former value.
  CUresult Put(void* key, void* value, Destructor destructor);
  // CUDA_ERROR_INVALID_HANDLE when there is no such key.
  CUresult Get(void* key, void** value) const;
  CUresult Delete(void* key);

  // Empties the store, then calls the destructors. The context ends.
  void Clear(CUcontext context);

 private:
  // A key keeps its place for ever; only its value comes and goes.
  struct Entry {
    std::atomic<void*> key{nullptr};
    std::atomic<void*> value{nullptr};
    std::atomic<bool> present{false};  // release: publishes the value
    Destructor destructor = nullptr;
  };
  static constexpr uint32_t kEntries = 1024;
  static uint32_t Hash(void* key) {
    return static_cast<uint32_t>((reinterpret_cast<uintptr_t>(key) * 0x9E3779B97F4A7C15u) >> 54);
  }
  Entry* Find(void* key) const;

  // Made with the first Put; stays.
  std::atomic<std::array<Entry, kEntries>*> entries_{nullptr};
  std::mutex mutex_;  // held by whoever changes something
};

}  // namespace detshare::shim
