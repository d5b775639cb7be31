// A program whose code has megabytes: a table that does not compress. With "hold" it runs until it
// is killed. With "time" it prints how long its first kernel took.
#include <cuda_runtime.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

#ifndef TABLE_WORDS
#define TABLE_WORDS (512 * 1024)
#endif

struct Table {
  uint32_t words[TABLE_WORDS];
};

// Noise, which the compiler's front end computes. So the image contains the table itself.
constexpr Table MakeTable() {
  Table table{};
  uint64_t state = 12345;
  for (int i = 0; i < TABLE_WORDS; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    table.words[i] = static_cast<uint32_t>(state >> 32);
  }
  return table;
}

__device__ const Table g_table = MakeTable();

__global__ void Look(int index, uint32_t* found) { *found = g_table.words[index]; }

}  // namespace

int main(int argc, char** argv) {
  const auto begin = std::chrono::steady_clock::now();
  uint32_t* device = nullptr;
  uint32_t found = 0;
  const int index = TABLE_WORDS - 1;
  if (cudaMalloc(&device, sizeof(found)) != cudaSuccess) return 3;
  const auto ready = std::chrono::steady_clock::now();
  Look<<<1, 1>>>(index, device);
  if (cudaMemcpy(&found, device, sizeof(found), cudaMemcpyDeviceToHost) != cudaSuccess) return 3;
  const auto end = std::chrono::steady_clock::now();
  uint64_t state = 12345;
  for (int i = 0; i <= index; ++i) state = state * 6364136223846793005u + 1442695040888963407u;
  std::puts(found == static_cast<uint32_t>(state >> 32) ? "ok" : "wrong");
  std::fflush(stdout);
  const auto ms = [](auto from, auto to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
  };
  if (argc > 1 && std::strcmp(argv[1], "time") == 0)
    std::printf("start %.1f ms, kernel %.1f ms\n", ms(begin, ready), ms(ready, end));
  if (argc > 1 && std::strcmp(argv[1], "hold") == 0) pause();
  return 0;
}
