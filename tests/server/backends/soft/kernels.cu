// Kernels for the tests of the software GPU. They have C names, so that the tests find them.
#include <cooperative_groups.h>

#include <cassert>
#include <cstdio>

namespace cg = cooperative_groups;

__device__ int initialised[4] = {1, 2, 3, 4};
__device__ long long counter;
__constant__ float factor = 2.0f;

extern "C" {

__global__ void Nothing() {}

__global__ void Add(const float* a, const float* b, float* c, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) c[i] = a[i] + b[i];
}

__global__ void Scale(float* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= factor;
}

__global__ void Store(int* out, int value) { *out = value; }

__global__ void CountUp() { atomicAdd(reinterpret_cast<unsigned long long*>(&counter), 1ull); }

__global__ void Trap() { __trap(); }

__global__ void PrintAndTrap() {
  printf("before\n");
  __trap();
}

__global__ void FailAssertion() { assert(blockDim.x == 2); }

__global__ void WaitForFlag(volatile int* flag) {
  while (*flag == 0) {
  }
}

// Block 0 waits for the last block.
__global__ void WaitForLast(volatile int* flag) {
  if (blockIdx.x == gridDim.x - 1) *flag = 1;
  if (blockIdx.x == 0) {
    while (*flag == 0) {
    }
  }
}

__global__ void GridSum(int* partial, int* total) {
  cg::grid_group grid = cg::this_grid();
  for (int round = 0; round < 3; ++round) {
    if (threadIdx.x == 0) partial[blockIdx.x] = blockIdx.x + round;
    grid.sync();
    if (grid.thread_rank() == 0) {
      int sum = 0;
      for (int i = 0; i < static_cast<int>(gridDim.x); ++i) sum += partial[i];
      total[round] = sum;
    }
    grid.sync();
  }
}

__global__ void ClusterRank(int* out) {
  cg::cluster_group cluster = cg::this_cluster();
  __shared__ int mine;
  if (threadIdx.x == 0) mine = blockIdx.x;
  cluster.sync();
  const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  if (threadIdx.x == 0) out[blockIdx.x] = *cluster.map_shared_rank(&mine, next);
  cluster.sync();
}

__global__ void SmIds(unsigned* out) {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x == 0) out[blockIdx.x] = sm;
}

__global__ void Print() { printf("block %d thread %d\n", blockIdx.x, threadIdx.x); }

__global__ void Dynamic(int* out) {
  extern __shared__ int shared[];
  shared[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

__global__ void __launch_bounds__(128) Bounded(int* out) { *out = 1; }

// Keeps 128 values at the same time.
__global__ void Wide(volatile int* values) {
  int kept[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) kept[i] = values[i];
#pragma unroll
  for (int i = 0; i < 128; ++i) values[i] = kept[127 - i];
}

__global__ void Allocate(int** out) {
  int* memory = static_cast<int*>(malloc(64));
  if (memory != nullptr) memory[15] = threadIdx.x;
  out[threadIdx.x] = memory;
}

__global__ void Work(float* out, int rounds) {
  float value = threadIdx.x;
  for (int i = 0; i < rounds; ++i) value = value * 1.5f + 1.0f;
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

constexpr int kTile = 16;
__global__ void MatMul(const float* a, const float* b, float* c, int n) {
  __shared__ float ta[kTile][kTile], tb[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int tile = 0; tile < n; tile += kTile) {
    ta[threadIdx.y][threadIdx.x] = a[row * n + tile + threadIdx.x];
    tb[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += ta[threadIdx.y][k] * tb[k][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

}  // extern "C"
