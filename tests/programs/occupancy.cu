// Occupancy queries. Checks relations between the results that hold on every device.
#include "check.h"

__global__ void Small(int* out) {
  if (threadIdx.x == 0) out[blockIdx.x] = 1;
}

__global__ void __launch_bounds__(128) Bounded(int* out) {
  if (threadIdx.x == 0) out[blockIdx.x] = 2;
}

__global__ void Shared(int* out) {
  __shared__ int staged[8 * 1024];
  extern __shared__ int dynamic[];
  staged[threadIdx.x] = threadIdx.x;
  dynamic[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = staged[blockDim.x - 1 - threadIdx.x] + dynamic[0];
}

int main() {
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  const int threads_per_sm = properties.maxThreadsPerMultiProcessor;

  int previous = 1 << 30;
  for (int threads = 32; threads <= 1024; threads += 32) {
    int blocks = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Small, threads, 0));
    REQUIRE(blocks >= 1 && blocks <= previous);
    REQUIRE(blocks * threads <= threads_per_sm);
    REQUIRE(blocks <= properties.maxBlocksPerMultiProcessor);
    previous = blocks;
  }
  std::printf("blocks fall with threads\n");

  // With more shared memory fewer blocks fit, and with too much none.
  previous = 1 << 30;
  for (std::size_t shared = 0; shared <= 48 * 1024; shared += 4096) {
    int blocks = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Small, 64, shared));
    REQUIRE(blocks >= 1 && blocks <= previous);
    REQUIRE(blocks * shared <= properties.sharedMemPerMultiprocessor);
    previous = blocks;
  }
  int with = 0, without = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&without, Small, 64, 0));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&with, Shared, 64, 0));
  REQUIRE(with >= 1 && with < without);
  std::printf("blocks fall with shared memory\n");

  int grid = 0, block = 0;
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, Small, 0, 0));
  REQUIRE(block % 32 == 0 && block >= 32 && block <= 1024);
  REQUIRE(grid >= properties.multiProcessorCount && grid % properties.multiProcessorCount == 0);
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, Small, 0, 96));
  REQUIRE(block <= 96);
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, Bounded, 0, 0));
  REQUIRE(block <= 128);
  std::printf("block sizes stay in their limits\n");

  // The shared memory that is reported as available can be used.
  std::size_t available = 0;
  CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&available, Small, 2, 64));
  REQUIRE(available > 0 && available <= properties.sharedMemPerMultiprocessor / 2);
  int flagged = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      &flagged, Small, 64, 0, cudaOccupancyDisableCachingOverride));
  REQUIRE(flagged == without);
  std::printf("available shared memory\n");

  // The result for a block that is larger than the kernel allows.
  int none = -1;
  cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&none, Bounded, 256, 0);
  std::printf("blocks beyond the bounds: %s, %d\n", cudaGetErrorName(error), none);
  cudaGetLastError();

  int* out = check::Zeroed<int>(1024);
  Small<<<10, block>>>(out);
  Bounded<<<5, block>>>(out + 10);
  Shared<<<1, 64, 64 * sizeof(int)>>>(out + 20);
  CHECK(cudaGetLastError());
  std::vector<int> want(84);
  for (int i = 0; i < 84; ++i) want[i] = i < 10 ? 1 : i < 15 ? 2 : i < 20 ? 0 : 63 - (i - 20) + 1;
  check::Compare("results", check::Download(out, 84), want);
  CHECK(cudaFree(out));
  return check::Ok();
}
