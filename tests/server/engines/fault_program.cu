// A program for tests of faults: fault_program steady|address|assert|trap|endless [PAUSE]
//
// `steady` computes until SIGTERM, compares every word with what the CPU computes, and prints how
// often it did that. It prints a line when it has begun, and rests for PAUSE microseconds after each
// round. `endless` starts a kernel that does not end, prints a line once the kernel runs, and waits.
// The others have the fault of that name, print the error, and wait.
#include <unistd.h>

#undef NDEBUG
#include <cassert>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static volatile std::sig_atomic_t g_end = 0;

constexpr int kWords = 2048;
constexpr int kRounds = 16;

__host__ __device__ uint32_t Next(uint32_t value, uint32_t index) {
  return (value ^ index) * 1664525u + 1013904223u;
}

__global__ void Advance(uint32_t* words) {
  const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  for (int round = 0; round < kRounds; ++round) words[index] = Next(words[index], index);
}

__global__ void WriteTo(int* where) { *where = 1; }
__global__ void Assert(const int* zero) { assert(*zero != 0); }
__global__ void Endless(volatile int* runs) {
  *runs = 1;
  while (*runs != 0) __nanosleep(1000);
}
__global__ void Trap() { asm volatile("trap;"); }

// Returns once the kernel runs. A program that is killed earlier may leave no kernel, because the
// launch may still be on its way.
static int StartEndless() {
  volatile int* runs = nullptr;
  if (cudaHostAlloc(const_cast<int**>(&runs), sizeof(int), cudaHostAllocMapped) != cudaSuccess)
    return 1;
  *runs = 0;
  Endless<<<1, 1>>>(runs);
  while (*runs == 0) {
    if (cudaStreamQuery(nullptr) != cudaErrorNotReady) return 1;
    usleep(1000);
  }
  std::puts("endless");
  std::fflush(stdout);
  pause();
  return 0;
}

static int Steady(useconds_t pause) {
  std::signal(SIGTERM, [](int) { g_end = 1; });
  std::vector<uint32_t> expected(kWords, 7), got(kWords);
  const size_t bytes = kWords * sizeof(uint32_t);
  uint32_t* words = nullptr;
  if (cudaMalloc(&words, bytes) != cudaSuccess) return 1;
  if (cudaMemcpy(words, expected.data(), bytes, cudaMemcpyHostToDevice) != cudaSuccess) return 1;
  int times = 0;
  for (; !g_end; ++times) {
    Advance<<<kWords / 128, 128>>>(words);
    const cudaError_t error = cudaMemcpy(got.data(), words, bytes, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) {
      std::fprintf(stderr, "%s\n", cudaGetErrorName(error));
      return 1;
    }
    for (uint32_t index = 0; index < kWords; ++index) {
      for (int round = 0; round < kRounds; ++round) expected[index] = Next(expected[index], index);
    }
    if (std::memcmp(got.data(), expected.data(), bytes) != 0) {
      std::fprintf(stderr, "wrong bits in round %d\n", times);
      return 3;
    }
    if (times == 0) {
      std::puts("begun");
      std::fflush(stdout);
    }
    if (pause != 0) usleep(pause);
  }
  std::printf("right %d times\n", times);
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (std::strcmp(argv[1], "steady") == 0)
    return Steady(argc > 2 ? static_cast<useconds_t>(std::atoi(argv[2])) : 0);
  if (std::strcmp(argv[1], "endless") == 0) return StartEndless();
  int* zero = nullptr;
  if (cudaMalloc(&zero, sizeof(int)) != cudaSuccess) return 1;
  if (cudaMemset(zero, 0, sizeof(int)) != cudaSuccess) return 1;
  if (std::strcmp(argv[1], "address") == 0) WriteTo<<<1, 1>>>(reinterpret_cast<int*>(0x10));
  if (std::strcmp(argv[1], "assert") == 0) Assert<<<1, 1>>>(zero);
  if (std::strcmp(argv[1], "trap") == 0) Trap<<<1, 1>>>();
  std::puts(cudaGetErrorName(cudaDeviceSynchronize()));
  std::fflush(stdout);
  pause();
  return 0;
}
