// Thread block clusters (compute capability 9.0): distributed shared memory, cluster barriers and
// ranks. The size is fixed at compile time or given at the launch.
#include <cooperative_groups.h>

#include <string>

#include "check.h"

namespace cg = cooperative_groups;

constexpr int kThreads = 64;
constexpr int kBlocks = 16;

// Every block adds up the shared memory of all blocks of its cluster, its own last.
__device__ void SumOverCluster(const int* in, int* out, int* ranks) {
  __shared__ int staged[kThreads];
  cg::cluster_group cluster = cg::this_cluster();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  staged[threadIdx.x] = in[i];
  cluster.sync();
  unsigned size = cluster.num_blocks(), rank = cluster.block_rank();
  int sum = 0;
  for (unsigned step = 1; step <= size; ++step) {
    const int* remote = cluster.map_shared_rank(staged, (rank + step) % size);
    sum = sum * 3 + remote[(threadIdx.x + step) % kThreads];
  }
  out[i] = sum;
  if (threadIdx.x == 0) ranks[blockIdx.x] = static_cast<int>(rank * 100 + size);
  // No block ends while others still read its shared memory.
  cluster.sync();
}

__global__ void __cluster_dims__(4, 1, 1) Fixed(const int* in, int* out, int* ranks) {
  SumOverCluster(in, out, ranks);
}

__global__ void Launched(const int* in, int* out, int* ranks) { SumOverCluster(in, out, ranks); }

// A histogram whose bins are spread over the cluster's blocks. Its atomics change other blocks'
// shared memory.
__global__ void Histogram(const int* in, int* bins) {
  __shared__ int local[32];
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x < 32) local[threadIdx.x] = 0;
  cluster.sync();
  unsigned bin = static_cast<unsigned>(in[blockIdx.x * blockDim.x + threadIdx.x]) %
                 (32 * cluster.num_blocks());
  atomicAdd(cluster.map_shared_rank(local, bin / 32) + bin % 32, 1);
  cluster.sync();
  if (threadIdx.x < 32)
    atomicAdd(&bins[cluster.block_rank() * 32 + threadIdx.x], local[threadIdx.x]);
}

void Verify(const char* what, int size, const std::vector<int>& in, const int* out,
            const int* ranks) {
  std::vector<int> want(kBlocks * kThreads), want_ranks(kBlocks);
  for (int block = 0; block < kBlocks; ++block) {
    int first = block / size * size, rank = block % size;
    want_ranks[block] = rank * 100 + size;
    for (int t = 0; t < kThreads; ++t) {
      int sum = 0;
      for (int step = 1; step <= size; ++step) {
        sum = sum * 3 + in[(first + (rank + step) % size) * kThreads + (t + step) % kThreads];
      }
      want[block * kThreads + t] = sum;
    }
  }
  check::Compare(what, check::Download(out, want.size()), want);
  check::Compare("ranks", check::Download(ranks, kBlocks), want_ranks);
}

int main() {
  check::Random random(90);
  std::vector<int> in(kBlocks * kThreads);
  for (int& value : in) value = static_cast<int>(random.Next32() % 1000);
  int* device_in = check::Upload(in);
  int* out = check::Zeroed<int>(in.size());
  int* ranks = check::Zeroed<int>(kBlocks);
  Fixed<<<kBlocks, kThreads>>>(device_in, out, ranks);
  CHECK(cudaGetLastError());
  Verify("fixed", 4, in, out, ranks);

  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kBlocks);
  config.blockDim = dim3(kThreads);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int* bins = check::Zeroed<int>(8 * 32);
  for (unsigned size : {1u, 2u, 8u}) {
    attribute.val.clusterDim.x = size;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    const int* argument = device_in;
    CHECK(cudaLaunchKernelEx(&config, Launched, argument, out, ranks));
    std::string what = "launched with " + std::to_string(size);
    Verify(what.c_str(), static_cast<int>(size), in, out, ranks);
    int clusters = 0;
    CHECK(cudaOccupancyMaxActiveClusters(&clusters, Launched, &config));
    REQUIRE(clusters >= 1);

    CHECK(cudaMemset(bins, 0, 8 * 32 * sizeof(int)));
    CHECK(cudaLaunchKernelEx(&config, Histogram, argument, bins));
    std::vector<int> want(8 * 32, 0);
    for (int value : in) ++want[static_cast<unsigned>(value) % (32 * size)];
    check::Compare("histogram", check::Download(bins, 8 * 32), want);
  }
  // A query may name more blocks than any cluster has, if the kernel allows sizes that are not
  // portable (seen with driver 580 on an H100).
  config.gridDim = dim3(64);
  attribute.val.clusterDim.x = 32;
  int clusters = -1;
  REQUIRE(cudaOccupancyMaxActiveClusters(&clusters, Launched, &config) ==
          cudaErrorInvalidClusterSize);
  CHECK(cudaFuncSetAttribute(Launched, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  CHECK(cudaOccupancyMaxActiveClusters(&clusters, Launched, &config));
  REQUIRE(clusters == 0);
  int largest = 0;
  CHECK(cudaOccupancyMaxPotentialClusterSize(&largest, Launched, &config));
  REQUIRE(largest == 16);
  CHECK(cudaFuncSetAttribute(Launched, cudaFuncAttributeNonPortableClusterSizeAllowed, 0));
  cudaGetLastError();
  attribute.val.clusterDim.x = 8;
  // The grid must consist of whole clusters.
  config.gridDim = dim3(kBlocks - 1);
  const int* argument = device_in;
  cudaError_t error = cudaLaunchKernelEx(&config, Launched, argument, out, ranks);
  std::printf("a part of a cluster: %s\n", cudaGetErrorName(error));
  REQUIRE(error != cudaSuccess);
  cudaGetLastError();
  CHECK(cudaDeviceSynchronize());
  for (int* memory : {device_in, out, ranks, bins}) CHECK(cudaFree(memory));
  return check::Ok();
}
