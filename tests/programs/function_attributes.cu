// Attributes of kernels that programs read and set: attributes, limits by launch bounds,
// preferences.
#include "check.h"

__constant__ int table[128] = {1, 2, 3};

__global__ void Plain(int* out) { *out = 5; }

__global__ void __launch_bounds__(64) Bounded(int* out) { out[threadIdx.x] = 6; }

__global__ void Shared(int* out) {
  __shared__ int staged[1000];
  staged[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = staged[blockDim.x - 1 - threadIdx.x];
}

__global__ void Local(int* out, int n) {
  // A dynamic index keeps the array in local memory.
  int values[100];
  for (int i = 0; i < 100; ++i) values[i] = i * n;
  out[threadIdx.x] = values[(n * 31 + threadIdx.x) % 100] + table[threadIdx.x];
}

int main() {
  cudaFuncAttributes plain, bounded, shared, local;
  CHECK(cudaFuncGetAttributes(&plain, Plain));
  CHECK(cudaFuncGetAttributes(&bounded, Bounded));
  CHECK(cudaFuncGetAttributes(&shared, Shared));
  CHECK(cudaFuncGetAttributes(&local, Local));
  for (const auto& attributes : {plain, bounded, shared, local}) {
    REQUIRE(attributes.numRegs > 0 && attributes.numRegs <= 255);
    REQUIRE(attributes.ptxVersion >= 75 && attributes.binaryVersion >= 75);
    REQUIRE(attributes.maxDynamicSharedSizeBytes > 0);
  }
  std::printf("threads: %d %d\n", plain.maxThreadsPerBlock, bounded.maxThreadsPerBlock);
  REQUIRE(plain.maxThreadsPerBlock == 1024 && bounded.maxThreadsPerBlock == 64);
  std::printf("shared: %zu %zu\n", plain.sharedSizeBytes, shared.sharedSizeBytes);
  REQUIRE(shared.sharedSizeBytes - plain.sharedSizeBytes >= 4000);
  REQUIRE(plain.localSizeBytes == 0 && local.localSizeBytes >= 400);

  CHECK(cudaFuncSetAttribute(Plain, cudaFuncAttributeMaxDynamicSharedMemorySize, 50000));
  CHECK(cudaFuncGetAttributes(&plain, Plain));
  REQUIRE(plain.maxDynamicSharedSizeBytes == 50000);
  CHECK(cudaFuncSetAttribute(Plain, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared));
  CHECK(cudaFuncGetAttributes(&plain, Plain));
  REQUIRE(plain.preferredShmemCarveout == cudaSharedmemCarveoutMaxShared);
  CHECK(cudaFuncSetCacheConfig(Shared, cudaFuncCachePreferShared));

  int* out = check::Zeroed<int>(256);
  Plain<<<1, 1, 50000>>>(out);
  CHECK(cudaGetLastError());
  REQUIRE(check::Download(out, 1)[0] == 5);
  // A launch with more threads than the kernel was compiled for fails and writes nothing.
  Bounded<<<1, 65>>>(out);
  REQUIRE(cudaGetLastError() != cudaSuccess);
  REQUIRE(check::Download(out, 1)[0] == 5);
  Bounded<<<1, 64>>>(out);
  Local<<<1, 96>>>(out + 100, 7);
  CHECK(cudaGetLastError());
  std::vector<int> want(196, 0);
  for (int i = 0; i < 64; ++i) want[i] = 6;
  for (int i = 0; i < 96; ++i) want[100 + i] = (7 * 31 + i) % 100 * 7 + (i < 3 ? i + 1 : 0);
  check::Compare("results", check::Download(out, 196), want);
  CHECK(cudaFree(out));
  return check::Ok();
}
