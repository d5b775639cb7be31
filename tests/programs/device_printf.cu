// printf in kernels: formats and argument types, the order within a thread and between launches,
// and the host's own output around it.
#include "check.h"

__device__ const char name[] = "a device string";

__global__ void Formats() {
  printf("integers: %d %i %u %x %X %o %c%c\n", -42, 7, 4000000000u, 0xbeefu, 0xCAFEu, 8u, 'o', 'k');
  printf("wide: %lld %llu %llx %ld\n", -1234567890123456789ll, 18446744073709551615ull,
         0xfedcba9876543210ull, 5l);
  printf("widths: [%5d] [%-5d] [%05d] [%+d] [%8x] [%#x]\n", 42, 42, 42, 42, 0xabcu, 0xabcu);
  printf("doubles: %f %e %g %.3f [%10.2f] [%-10.1f] %E\n", 3.25, 12345.678, 0.0001, 2.0 / 3.0, -1.5,
         9.75, 1e100);
  printf("strings: %s, %s, [%12s] [%-6s]\n", "literal", name, "right", "left");
  printf("percent: 100%%, no arguments\n");
  float narrow = 0.1f;
  unsigned char byte = 200;
  short negative = -3;
  printf("promoted: %.9f %d %d\n", narrow, byte, negative);
}

__global__ void Count(int from, int to) {
  for (int i = from; i < to; ++i) printf("count %d of %d, squared %d\n", i, to, i * i);
}

__global__ void OnlyOne(int chosen) {
  if (blockIdx.x * blockDim.x + threadIdx.x == chosen) {
    int length = printf("thread %d of block %d\n", threadIdx.x, blockIdx.x);
    if (length < 0) printf("a negative result\n");
  }
}

int main() {
  std::printf("host: before\n");
  std::fflush(stdout);
  Formats<<<1, 1>>>();
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  std::fflush(stdout);

  std::printf("host: between\n");
  std::fflush(stdout);
  Count<<<1, 1>>>(0, 5);
  Count<<<1, 1>>>(5, 9);
  CHECK(cudaDeviceSynchronize());
  std::fflush(stdout);

  for (int chosen : {0, 33, 95}) {
    OnlyOne<<<3, 32>>>(chosen);
    CHECK(cudaDeviceSynchronize());
    std::fflush(stdout);
  }
  std::printf("host: after\n");
  return check::Ok();
}
