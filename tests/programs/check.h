// Helpers of the test programs: checked CUDA calls, exact comparison with a CPU reference, digests
// of results, and a random number generator that gives the same sequence everywhere. Every failure
// prints one line on stdout and ends the program with exit code 1.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>

// Ends the program unless `call` returns cudaSuccess. Names the call and its error.
#define CHECK(call) ::check::ExpectRuntime((call), cudaSuccess, #call, __FILE__, __LINE__)

// Ends the program unless `call` returns exactly `want`. Clears the runtime's last error.
#define EXPECT(call, want) ::check::ExpectRuntime((call), (want), #call, __FILE__, __LINE__)

// Prints the error that `call` returns. Ends the program if `call` succeeds. For errors that the
// documentation does not specify: the result of a real GPU is the expected one.
#define EXPECT_ERROR(call) ::check::ExpectSomeError((call), #call, __FILE__, __LINE__)

// Ends the program unless the condition holds. Names the condition.
#define REQUIRE(condition)                                                                  \
  do {                                                                                      \
    if (!(condition)) ::check::Fail("requirement not met", #condition, __FILE__, __LINE__); \
  } while (0)

namespace check {

inline const char* BaseName(const char* file) {
  const char* slash = std::strrchr(file, '/');
  return slash != nullptr ? slash + 1 : file;
}

[[noreturn]] inline void Fail(const char* what, const char* text, const char* file, int line) {
  std::printf("%s:%d: %s: %s\n", BaseName(file), line, what, text);
  std::fflush(stdout);
  std::_Exit(1);
}

inline void ExpectRuntime(cudaError_t got, cudaError_t want, const char* text, const char* file,
                          int line) {
  if (got != want) {
    std::printf("%s:%d: %s: got %s (%s), want %s\n", BaseName(file), line, text,
                cudaGetErrorName(got), cudaGetErrorString(got), cudaGetErrorName(want));
    std::fflush(stdout);
    std::_Exit(1);
  }
  if (want != cudaSuccess) cudaGetLastError();
}

inline void ExpectSomeError(cudaError_t got, const char* text, const char* file, int line) {
  if (got == cudaSuccess) Fail("succeeded but should not", text, file, line);
  std::printf("line %d: %s\n", line, cudaGetErrorName(got));
  cudaGetLastError();
}

// FNV-1a, 64 bits, over the bytes of `count` values. T must have no padding.
template <typename T>
std::uint64_t Digest(const T* values, std::size_t count) {
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(values);
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (std::size_t i = 0; i < count * sizeof(T); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  return hash;
}

// A value as text.
struct Text {
  char text[128];
};

inline Text ShowNumber(double value, unsigned long long bits, int digits) {
  Text out;
  std::snprintf(out.text, sizeof out.text, "%.17g (0x%0*llx)", value, digits, bits);
  return out;
}
inline Text Show(double value) {
  unsigned long long bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return ShowNumber(value, bits, 16);
}
inline Text Show(float value) {
  unsigned bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return ShowNumber(value, bits, 8);
}
inline Text ShowInteger(long long value) {
  Text out;
  std::snprintf(out.text, sizeof out.text, "%lld", value);
  return out;
}
inline Text ShowInteger(unsigned long long value) {
  Text out;
  std::snprintf(out.text, sizeof out.text, "%llu (0x%llx)", value, value);
  return out;
}
inline Text ShowBytes(const void* value, std::size_t size) {
  Text out;
  int length = std::snprintf(out.text, sizeof out.text, "bytes");
  for (std::size_t i = 0; i < size && i < 32; ++i) {
    length += std::snprintf(out.text + length, sizeof out.text - length, " %02x",
                            static_cast<const unsigned char*>(value)[i]);
  }
  return out;
}

// Converts the value to text: floating-point numbers with their bits, other types as bytes.
template <typename T>
std::enable_if_t<std::is_integral<T>::value, Text> Show(T value) {
  return ShowInteger(
      static_cast<std::conditional_t<std::is_signed<T>::value, long long, unsigned long long>>(
          value));
}
template <typename T>
std::enable_if_t<!std::is_integral<T>::value, Text> Show(const T& value) {
  return ShowBytes(&value, sizeof value);
}

// Compares bit by bit. At the first difference, prints both values and ends the program. Otherwise
// prints one line with the number of values and their digest.
template <typename T>
void Compare(const char* what, const T* got, const T* want, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(T)) == 0) continue;
    std::printf("%s: mismatch at %zu: got %s, want %s\n", what, i, Show(got[i]).text,
                Show(want[i]).text);
    std::fflush(stdout);
    std::_Exit(1);
  }
  std::printf("%s: %zu values, digest %016llx\n", what, count,
              static_cast<unsigned long long>(Digest(got, count)));
}

template <typename T>
void Compare(const char* what, const std::vector<T>& got, const std::vector<T>& want) {
  if (got.size() != want.size()) {
    std::printf("%s: got %zu values, want %zu\n", what, got.size(), want.size());
    std::fflush(stdout);
    std::_Exit(1);
  }
  Compare(what, got.data(), want.data(), got.size());
}

// splitmix64: the same seed gives the same sequence on every machine, host and device.
class Random {
 public:
  __host__ __device__ explicit Random(std::uint64_t seed) : state_(seed) {}

  __host__ __device__ std::uint64_t Next64() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  __host__ __device__ std::uint32_t Next32() { return static_cast<std::uint32_t>(Next64() >> 32); }
  // A value in [-1, 1) with 23 random bits, exact in float.
  __host__ __device__ float NextFloat() {
    return static_cast<float>(static_cast<std::int32_t>(Next32() >> 8) - (1 << 23)) / (1 << 23);
  }

 private:
  std::uint64_t state_;
};

// Makes a device allocation that holds a copy of `values`.
template <typename T>
T* Upload(const std::vector<T>& values) {
  T* device = nullptr;
  CHECK(cudaMalloc(&device, values.size() * sizeof(T)));
  CHECK(cudaMemcpy(device, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

// Makes a device allocation of `count` zero values.
template <typename T>
T* Zeroed(std::size_t count) {
  T* device = nullptr;
  CHECK(cudaMalloc(&device, count * sizeof(T)));
  CHECK(cudaMemset(device, 0, count * sizeof(T)));
  CHECK(cudaStreamSynchronize(cudaStreamLegacy));
  return device;
}

// Waits for the work of the default stream and returns the first `count` values of a device
// allocation.
template <typename T>
std::vector<T> Download(const T* device, std::size_t count) {
  std::vector<T> values(count);
  CHECK(cudaMemcpy(values.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

// Waits until `stream` is ready. For a stream whose work is known to be complete from other
// streams: its own report may come a moment later.
inline void WaitUntilReady(cudaStream_t stream) {
  cudaError_t result = cudaErrorNotReady;
  while (result == cudaErrorNotReady) result = cudaStreamQuery(stream);
  CHECK(result);
  cudaGetLastError();
}

// Reports success. Returns main's exit code.
inline int Ok() {
  std::printf("ok\n");
  return 0;
}

}  // namespace check
