// Holds memory with a pattern, or lets kernels look for the pattern at addresses of another program.
//
//   foreign_memory hold           fills device memory and pinned memory, prints `ADDRESS BYTES` of each
//                                 and `ready`, waits for the end of its input, and checks the memory
//   foreign_memory scan ADDRESS BYTES
//                                 a kernel reads the range, prints how many words have the pattern, and
//                                 another one overwrites the range
//
// `scan` prints the error of a kernel that cannot read or write there, and has exit code 0 then, too.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr uint32_t kPattern = 0xDE7A5EED;
constexpr size_t kDeviceBytes = 32 << 20, kPinnedBytes = 4 << 20;

void Check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  std::printf("%s: %s\n", call, cudaGetErrorName(result));
  std::exit(1);
}

__global__ void Fill(uint32_t* words, size_t count, uint32_t value) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    words[i] = value;
}

__global__ void Count(const uint32_t* words, size_t count, unsigned long long* found) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    mine += words[i] == kPattern;
  if (mine != 0) atomicAdd(found, mine);
}

unsigned long long Found(const uint32_t* words, size_t bytes, cudaError_t* error) {
  unsigned long long *counter = nullptr, found = 0;
  Check(cudaMalloc(&counter, sizeof(*counter)), "cudaMalloc");
  Check(cudaMemset(counter, 0, sizeof(*counter)), "cudaMemset");
  Count<<<64, 256>>>(words, bytes / sizeof(uint32_t), counter);
  *error = cudaMemcpy(&found, counter, sizeof(found), cudaMemcpyDeviceToHost);
  return found;
}

int Hold() {
  uint32_t *device = nullptr, *pinned = nullptr;
  Check(cudaMalloc(&device, kDeviceBytes), "cudaMalloc");
  Check(cudaMallocHost(&pinned, kPinnedBytes), "cudaMallocHost");
  Fill<<<64, 256>>>(device, kDeviceBytes / sizeof(uint32_t), kPattern);
  Fill<<<64, 256>>>(pinned, kPinnedBytes / sizeof(uint32_t), kPattern);
  Check(cudaDeviceSynchronize(), "Fill");
  std::printf("%p %zu\n%p %zu\nready\n", static_cast<void*>(device), kDeviceBytes,
              static_cast<void*>(pinned), kPinnedBytes);
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  cudaError_t error = cudaSuccess;
  const unsigned long long in_device = Found(device, kDeviceBytes, &error);
  Check(error, "the kernel that checks device memory");
  const unsigned long long in_pinned = Found(pinned, kPinnedBytes, &error);
  Check(error, "the kernel that checks pinned memory");
  const bool same =
      in_device * sizeof(uint32_t) == kDeviceBytes && in_pinned * sizeof(uint32_t) == kPinnedBytes;
  std::printf("%s\n", same ? "unchanged" : "CHANGED");
  return same ? 0 : 1;
}

int Scan(const char* address, const char* bytes) {
  auto* const words = reinterpret_cast<uint32_t*>(std::strtoull(address, nullptr, 16));
  const size_t size = std::strtoull(bytes, nullptr, 10);
  cudaError_t error = cudaSuccess;
  const unsigned long long found = Found(words, size, &error);
  if (error != cudaSuccess) {
    std::printf("not readable: %s\n", cudaGetErrorName(error));
    return 0;
  }
  Fill<<<64, 256>>>(words, size / sizeof(uint32_t), 0);
  error = cudaDeviceSynchronize();
  std::printf("%llu words found, %s\n", found,
              error == cudaSuccess ? "overwritten" : cudaGetErrorName(error));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "hold") == 0) return Hold();
  if (argc == 4 && std::strcmp(argv[1], "scan") == 0) return Scan(argv[2], argv[3]);
  std::printf("foreign_memory hold | scan ADDRESS BYTES\n");
  return 2;
}
