// Kernels of one device that use the memory of the other.
#include <vector>

#include "check.h"

namespace {

constexpr int kCount = 1 << 16;

__global__ void Fill(int* values, int count, int factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = i * factor;
}

__global__ void AddFrom(int* to, const int* from, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] += from[i];
}

__global__ void Count(int* counter) { atomicAdd(counter, 1); }

}  // namespace

int main() {
  for (int d = 0; d < 2; ++d) {
    int can = 0, access = 0;
    CHECK(cudaDeviceCanAccessPeer(&can, d, 1 - d));
    CHECK(cudaDeviceGetP2PAttribute(&access, cudaDevP2PAttrAccessSupported, d, 1 - d));
    REQUIRE(can == 1 && access == 1);
    CHECK(cudaDeviceCanAccessPeer(&can, d, d));
    REQUIRE(can == 0);
  }
  int* before[2];  // made before access was enabled
  int* after[2];
  for (int d = 0; d < 2; ++d) {
    CHECK(cudaSetDevice(d));
    CHECK(cudaMalloc(&before[d], kCount * sizeof(int)));
  }
  for (int d = 0; d < 2; ++d) {
    CHECK(cudaSetDevice(d));
    EXPECT(cudaDeviceDisablePeerAccess(1 - d), cudaErrorPeerAccessNotEnabled);
    EXPECT(cudaDeviceEnablePeerAccess(1 - d, 1), cudaErrorInvalidValue);
    CHECK(cudaDeviceEnablePeerAccess(1 - d, 0));
    EXPECT(cudaDeviceEnablePeerAccess(1 - d, 0), cudaErrorPeerAccessAlreadyEnabled);
  }
  for (int d = 0; d < 2; ++d) {
    CHECK(cudaSetDevice(d));
    CHECK(cudaMalloc(&after[d], kCount * sizeof(int)));
  }
  std::vector<int> want(kCount);
  for (int d = 0; d < 2; ++d) {
    // Fills the other device's memory and adds it to this device's.
    CHECK(cudaSetDevice(d));
    Fill<<<kCount / 256, 256>>>(before[1 - d], kCount, 3);
    Fill<<<kCount / 256, 256>>>(after[1 - d], kCount, 4);
    Fill<<<kCount / 256, 256>>>(before[d], kCount, 10);
    AddFrom<<<kCount / 256, 256>>>(before[d], before[1 - d], kCount);
    AddFrom<<<kCount / 256, 256>>>(before[d], after[1 - d], kCount);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < kCount; ++i) want[i] = 17 * i;
    check::Compare("near and far", check::Download(before[d], kCount), want);
  }
  // Atomics of both devices on one counter.
  CHECK(cudaSetDevice(0));
  CHECK(cudaMemset(after[0], 0, sizeof(int)));
  CHECK(cudaDeviceSynchronize());
  for (int d = 0; d < 2; ++d) {
    CHECK(cudaSetDevice(d));
    Count<<<40, 64>>>(after[0]);
  }
  for (int d = 0; d < 2; ++d) {
    CHECK(cudaSetDevice(d));
    CHECK(cudaDeviceSynchronize());
  }
  std::printf("counted %d\n", check::Download(after[0], 1)[0]);

  CHECK(cudaSetDevice(0));
  CHECK(cudaDeviceDisablePeerAccess(1));
  EXPECT(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
  // Access in the other direction stays enabled. Copies do not need access.
  CHECK(cudaSetDevice(1));
  Fill<<<kCount / 256, 256>>>(before[0], kCount, 6);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(before[1], before[0], kCount * sizeof(int), cudaMemcpyDefault));
  for (int i = 0; i < kCount; ++i) want[i] = 6 * i;
  check::Compare("one way", check::Download(before[1], kCount), want);
  for (int d = 0; d < 2; ++d) {
    CHECK(cudaFree(before[d]));
    CHECK(cudaFree(after[d]));
  }
  return check::Ok();
}
