#include "client_shim/objects/local_storage.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

namespace detshare::shim {
namespace {

std::vector<void*> g_destroyed;
void Destroy(CUcontext, void* key, void*) { g_destroyed.push_back(key); }

void* Pointer(uintptr_t value) { return reinterpret_cast<void*>(value); }

TEST_CASE("A value under a key is read, replaced and deleted") {
  LocalStorage storage;
  void* value = nullptr;
  CHECK(storage.Get(Pointer(8), &value) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(storage.Delete(Pointer(8)) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(storage.Put(Pointer(8), Pointer(80), nullptr) == CUDA_SUCCESS);
  CHECK(storage.Get(Pointer(8), &value) == CUDA_SUCCESS);
  CHECK(value == Pointer(80));
  CHECK(storage.Put(Pointer(8), Pointer(81), nullptr) == CUDA_SUCCESS);
  CHECK(storage.Get(Pointer(8), &value) == CUDA_SUCCESS);
  CHECK(value == Pointer(81));
  CHECK(storage.Delete(Pointer(8)) == CUDA_SUCCESS);
  CHECK(storage.Get(Pointer(8), &value) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(storage.Put(Pointer(8), Pointer(82), nullptr) == CUDA_SUCCESS);
  CHECK(storage.Get(Pointer(8), &value) == CUDA_SUCCESS);
  CHECK(value == Pointer(82));
}

TEST_CASE("A full store refuses new keys and keeps the old ones") {
  LocalStorage storage;
  uintptr_t kept = 0;
  while (storage.Put(Pointer((kept + 1) * 64), Pointer(kept), nullptr) == CUDA_SUCCESS) ++kept;
  CHECK(kept == 1024);
  CHECK(storage.Put(Pointer((kept + 1) * 64), nullptr, nullptr) == CUDA_ERROR_OUT_OF_MEMORY);
  for (uintptr_t i = 0; i < kept; ++i) {
    void* value = nullptr;
    CHECK(storage.Get(Pointer((i + 1) * 64), &value) == CUDA_SUCCESS);
    CHECK(value == Pointer(i));
  }
}

TEST_CASE("Clearing calls the destructors of what is there") {
  LocalStorage storage;
  g_destroyed.clear();
  storage.Put(Pointer(16), Pointer(1), Destroy);
  storage.Put(Pointer(32), Pointer(2), Destroy);
  storage.Put(Pointer(48), Pointer(3), nullptr);
  storage.Delete(Pointer(32));
  storage.Clear(nullptr);
  CHECK(g_destroyed == std::vector<void*>{Pointer(16)});
  void* value = nullptr;
  CHECK(storage.Get(Pointer(48), &value) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("Readers see values whole while others write") {
  LocalStorage storage;
  storage.Put(Pointer(8), Pointer(8), nullptr);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uintptr_t i = 2; i < 400; ++i) storage.Put(Pointer(i * 8), Pointer(i * 8), nullptr);
    stop = true;
  });
  int wrong = 0;
  while (!stop) {
    for (uintptr_t i = 1; i < 400; ++i) {
      void* value = nullptr;
      if (storage.Get(Pointer(i * 8), &value) == CUDA_SUCCESS && value != Pointer(i * 8)) ++wrong;
    }
  }
  writer.join();
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace detshare::shim
