// The tables behind cuGetExportTable, where they need no daemon.
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <string>

#include "proto/driver_api/cuda_unrenamed.h"

namespace {

struct Shape {
  const char* id;
  size_t entries;
  bool has_size;
};
constexpr Shape kShapes[] = {
    {"6bd5fb6c5bf4e74a8987d93912fd9df9", 13, true}, {"a094798c2e742e7493f20800200c0a66", 7, true},
    {"c693336e1121df11a8c368f355d89593", 3, false}, {"263e88607cd2614392f6bbd5006dfa7e", 15, true},
    {"d4082055bde6704b8d34ba123c66e1f2", 3, true},  {"42d85a8123f6cb478298f6e78a3aecdc", 3, true},
    {"f8cff95121468b4eb9e2fb469e7c0dd9", 3, true},  {"21318c60971432488ca641ff7324c8f2", 93, true},
    {"1734dc26800d47458726c0f1e7dd8bca", 17, true}, {"da9151d33ae6cc41a5c04f26d533e328", 7, true},
    {"6e163fbeb958444d835ce182aff1991e", 99, true},
};

CUuuid Uuid(const std::string& hex) {
  CUuuid uuid;
  for (int i = 0; i < 16; ++i)
    uuid.bytes[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return uuid;
}

void* const* Table(const std::string& hex) {
  const CUuuid id = Uuid(hex);
  const void* table = nullptr;
  REQUIRE(cuGetExportTable(&table, &id) == CUDA_SUCCESS);
  REQUIRE(table != nullptr);
  return static_cast<void* const*>(table);
}

template <typename... Args>
CUresult Call(void* entry, Args... args) {
  return reinterpret_cast<CUresult (*)(Args...)>(entry)(args...);
}

TEST_CASE("Every private table begins with its size and has a function in every other place") {
  for (const Shape& shape : kShapes) {
    INFO(shape.id);
    void* const* table = Table(shape.id);
    if (shape.has_size) CHECK(reinterpret_cast<size_t>(table[0]) == shape.entries * sizeof(void*));
    for (size_t i = shape.has_size ? 1 : 0; i < shape.entries; ++i) {
      const bool null = std::string(shape.id) == "21318c60971432488ca641ff7324c8f2" && i == 91;
      CHECK((table[i] == nullptr) == null);
    }
  }
}

TEST_CASE("A table keeps its address") {
  for (const Shape& shape : kShapes) CHECK(Table(shape.id) == Table(shape.id));
}

TEST_CASE("An unknown table is CUDA_ERROR_INVALID_VALUE and a null pointer") {
  const CUuuid id = Uuid("00112233445566778899aabbccddeeff");
  const void* table = &id;
  CHECK(cuGetExportTable(&table, &id) == CUDA_ERROR_INVALID_VALUE);
  CHECK(table == nullptr);
}

TEST_CASE("Each unfilled entry is its own function and returns CUDA_ERROR_NOT_SUPPORTED") {
  void* const* table = Table("6bd5fb6c5bf4e74a8987d93912fd9df9");
  CHECK(Call(table[3]) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(Call(table[4]) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(table[3] != table[4]);
}

TEST_CASE("The handshake gives its fixed replies before initialisation, too") {
  void* const* table = Table("d4082055bde6704b8d34ba123c66e1f2");
  uint64_t reply[2] = {};
  REQUIRE(Call<uint32_t, uint64_t, uint64_t*>(table[1], 13000, 1, reply) == CUDA_SUCCESS);
  CHECK(reply[0] == 0x3341181C03CB675C);
  CHECK(reply[1] == 0x8ED383AA1F4CD1E8);
  REQUIRE(Call<uint32_t, uint64_t, uint64_t*>(table[1], 13001, 1, reply) == CUDA_SUCCESS);
  CHECK(reply[0] == 0x1841181C03CB675C);
  uint64_t first[2], second[2];
  REQUIRE(Call<uint32_t, uint64_t, uint64_t*>(table[1], 13002, 1, first) == CUDA_SUCCESS);
  REQUIRE(Call<uint32_t, uint64_t, uint64_t*>(table[1], 13002, 2, second) == CUDA_SUCCESS);
  CHECK(memcmp(first, second, sizeof(first)) != 0);
}

TEST_CASE("Tool callbacks get zeroed buffers of the lengths that the runtime expects") {
  void* const* table = Table("a094798c2e742e7493f20800200c0a66");
  for (const auto& [entry, expected] : {std::pair(2, 1024), std::pair(6, 14)}) {
    void* buffer = nullptr;
    size_t count = 0;
    REQUIRE(Call<void**, size_t*>(table[entry], &buffer, &count) == CUDA_SUCCESS);
    REQUIRE(count == static_cast<size_t>(expected));
    const auto* words = static_cast<const uint64_t*>(buffer);
    for (size_t i = 0; i < count; ++i) REQUIRE(words[i] == 0);
  }
}

TEST_CASE("Tables that need a context say so before initialisation") {
  CUcontext context;
  void* value;
  CHECK(Call<CUcontext*, CUdevice>(Table("6bd5fb6c5bf4e74a8987d93912fd9df9")[2], &context, 0) ==
        CUDA_ERROR_NOT_INITIALIZED);
  CHECK(Call<CUcontext*>(Table("42d85a8123f6cb478298f6e78a3aecdc")[2], &context) ==
        CUDA_ERROR_NOT_INITIALIZED);
  CUmodule module;
  CHECK(Call<CUmodule*, const void*, const char**, void**, uint32_t>(
            Table("6bd5fb6c5bf4e74a8987d93912fd9df9")[6], &module, "image", nullptr, nullptr, 0) ==
        CUDA_ERROR_NOT_INITIALIZED);
  CHECK(Call<void**, CUcontext, void*>(Table("c693336e1121df11a8c368f355d89593")[2], &value,
                                       nullptr, &value) == CUDA_ERROR_NOT_INITIALIZED);
  uint8_t *first, *second;
  CHECK(Call<uint8_t**, uint8_t**>(Table("1734dc26800d47458726c0f1e7dd8bca")[4], &first, &second) ==
        CUDA_ERROR_NOT_INITIALIZED);
}

TEST_CASE("A context passes its check, and messages of the runtime are accepted") {
  void* const* checks = Table("263e88607cd2614392f6bbd5006dfa7e");
  uint32_t result = 7;
  void* more = nullptr;
  CHECK(Call<CUcontext, uint32_t*, void**>(checks[2], nullptr, &result, &more) == CUDA_SUCCESS);
  CHECK(result == 0);
  CHECK(Call(checks[3]) == CUDA_SUCCESS);
  CHECK(Call<const char*, int, const char*>(Table("f8cff95121468b4eb9e2fb469e7c0dd9")[1], "runtime",
                                            1, "text") == CUDA_SUCCESS);
}

TEST_CASE("Without a session the visitor of a module's functions reports that it visited none") {
  void* const visit = Table("6e163fbeb958444d835ce182aff1991e")[7];
  const auto never = [](void*, CUfunction) { FAIL("there is no function"); };
  CHECK(Call<CUcontext, CUmodule, void (*)(void*, CUfunction), void*>(visit, nullptr, nullptr,
                                                                      never, nullptr) == 0);
}

struct Cache {
  void* const* table = Table("da9151d33ae6cc41a5c04f26d533e328");

  void* Open(uint32_t kind, const char* input, const char* options, const char* date,
             uint32_t architecture) {
    void* handle = nullptr;
    REQUIRE(Call<void**, uint32_t, const void*, uint32_t, const char*, const char*, const char*,
                 uint32_t>(table[1], &handle, kind, input, strlen(input), options, "HOST64", date,
                           architecture) == CUDA_SUCCESS);
    REQUIRE(handle != nullptr);
    return handle;
  }
  void Store(void* handle, const char* code) {
    REQUIRE(Call<void*, uint64_t, const void*, uint32_t>(table[4], handle, 0, code, strlen(code)) ==
            CUDA_SUCCESS);
  }
  std::string Find(void* handle) {
    void* data = nullptr;
    uint32_t bytes[2] = {0, 0xABCDEF};
    const CUresult result =
        Call<void*, uint64_t, void**, uint32_t*>(table[3], handle, 0, &data, bytes);
    CHECK(bytes[1] == 0xABCDEF);  // the length has 32 bits
    if (result != CUDA_SUCCESS) {
      CHECK(result == CUDA_ERROR_NOT_FOUND);
      return "(nothing)";
    }
    const std::string code(static_cast<char*>(data), bytes[0]);
    CHECK(Call<void*>(table[6], data) == CUDA_SUCCESS);
    return code;
  }
  void Close(void* handle) { CHECK(Call<void*>(table[2], handle) == CUDA_SUCCESS); }
};

TEST_CASE("NVRTC finds what it has stored in its compile cache") {
  Cache cache;
  void* handle = cache.Open(2, "bitcode", " -arch=compute_90", "Aug 20", 90);
  CHECK(cache.Find(handle) == "(nothing)");
  cache.Store(handle, "ptx for 90");
  CHECK(cache.Find(handle) == "ptx for 90");
  cache.Close(handle);
  handle = cache.Open(2, "bitcode", " -arch=compute_90", "Aug 20", 90);
  CHECK(cache.Find(handle) == "ptx for 90");
  cache.Close(handle);
}

TEST_CASE(
    "Code that NVRTC compiled with other options, or that another NVRTC compiled, is not found") {
  Cache cache;
  void* handle = cache.Open(2, "input", " -arch=compute_90", "Aug 20", 90);
  cache.Store(handle, "ptx");
  cache.Close(handle);
  for (void* other : {cache.Open(1, "input", " -arch=compute_90", "Aug 20", 90),
                      cache.Open(2, "other", " -arch=compute_90", "Aug 20", 90),
                      cache.Open(2, "input", " -arch=compute_80", "Aug 20", 90),
                      cache.Open(2, "input", " -arch=compute_90", "Sep 1", 90),
                      cache.Open(2, "input", " -arch=compute_90", "Aug 20", 80)}) {
    CHECK(cache.Find(other) == "(nothing)");
    cache.Close(other);
  }
}

}  // namespace
