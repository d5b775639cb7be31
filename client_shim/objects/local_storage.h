// The data that CUDA runtimes and libraries keep with a context, by key. They read it in nearly
// every call, so reading is lock-free.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// Any thread.
class LocalStorage {
 public:
  using Destructor = void (*)(CUcontext context, void* key, void* value);

  LocalStorage() = default;
  ~LocalStorage() { delete entries_.load(std::memory_order_relaxed); }
  LocalStorage(const LocalStorage&) = delete;
  LocalStorage& operator=(const LocalStorage&) = delete;

  // Stores a value, and replaces a former value of the key. CUDA_ERROR_INVALID_VALUE: the key is
  // null. CUDA_ERROR_OUT_OF_MEMORY: the store is full.
  CUresult Put(void* key, void* value, Destructor destructor);
  // CUDA_ERROR_INVALID_HANDLE: there is no such key.
  CUresult Get(void* key, void** value) const;
  // Removes the key without calling its destructor. Errors as for Get.
  CUresult Delete(void* key);

  // Empties the store, then calls the destructors. For the end of the context.
  void Clear(CUcontext context);

 private:
  // A key keeps its place for ever. Only its value comes and goes.
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

  // Made by the first Put and never replaced.
  std::atomic<std::array<Entry, kEntries>*> entries_{nullptr};
  std::mutex mutex_;  // held by threads that change something
};

}  // namespace detshare::shim
