// Holds memory with a pattern, or lets kernels look for the pattern at addresses of another program.
//
//   foreign_memory hold           fills device memory and pinned memory, prints `ADDRESS BYTES` of each
//                                 and `ready`, waits for the end of its input, and checks the memory
//   foreign_memory scan ADDRESS BYTES
//                                 a kernel reads the range, prints how many words have the pattern, and
//                                 another one overwrites the range
//
// `scan` prints the error of a kernel that cannot read or write there, and has exit code 0 then, too.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/gpu/memory/pattern.h"

namespace {

constexpr size_t kDeviceBytes = 32 << 20, kPinnedBytes = 4 << 20;

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
  const unsigned long long in_device =
      CountPattern(device, kDeviceBytes / sizeof(uint32_t), &error);
  Check(error, "the kernel that checks device memory");
  const unsigned long long in_pinned =
      CountPattern(pinned, kPinnedBytes / sizeof(uint32_t), &error);
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
  const unsigned long long found = CountPattern(words, size / sizeof(uint32_t), &error);
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
