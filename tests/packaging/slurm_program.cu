// Works on the GPU for some seconds, with some memory, and prints a line when it begins and one when
// it ends: a job for slurm_test.
//
//   slurm_program MEBIBYTES SECONDS
#include <cstdio>
#include <cstdlib>
#include <ctime>

#define CHECK(call)                                             \
  do {                                                          \
    const cudaError_t result = (call);                          \
    if (result != cudaSuccess) {                                \
      std::printf("%s: %s\n", #call, cudaGetErrorName(result)); \
      std::exit(1);                                             \
    }                                                           \
  } while (false)

__global__ void Work(unsigned* values, int rounds) {
  unsigned value = threadIdx.x;
  for (int i = 0; i < rounds; ++i) value = value * 1664525u + 1013904223u;
  values[threadIdx.x] = value;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::time_t end = std::time(nullptr) + std::atoi(argv[2]);
  unsigned* values = nullptr;
  CHECK(cudaMalloc(&values, std::atol(argv[1]) << 20));
  std::puts("works");
  do {
    Work<<<1, 32>>>(values, 20000);
    CHECK(cudaDeviceSynchronize());
  } while (std::time(nullptr) < end);
  CHECK(cudaFree(values));
  std::puts("done");
  return 0;
}
