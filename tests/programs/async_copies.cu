// Copies to shared memory that run while a block computes: by threads, by groups, with a pipeline
// of stages, and with a barrier.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

#include <cuda/barrier>
#include <cuda/pipeline>

#include "check.h"

namespace cg = cooperative_groups;

constexpr int kThreads = 128;
constexpr int kTile = 512;
constexpr int kTiles = 24;
constexpr int kStages = 3;

__global__ void ByGroup(const int* in, int* out) {
  __shared__ int tile[kTile];
  const cg::thread_block block = cg::this_thread_block();
  const int* const own = in + blockIdx.x * kTile;
  cg::memcpy_async(block, tile, own, sizeof(tile));
  cg::wait(block);
  for (int i = threadIdx.x; i < kTile; i += kThreads)
    out[blockIdx.x * kTile + i] = tile[kTile - 1 - i];
}

__global__ void ByBarrier(const int* in, int* out) {
  __shared__ int tile[kTile];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  const cg::thread_block block = cg::this_thread_block();
  if (threadIdx.x == 0) init(&barrier, kThreads);
  block.sync();
  cuda::memcpy_async(block, tile, in + blockIdx.x * kTile, sizeof(tile), barrier);
  barrier.arrive_and_wait();
  for (int i = threadIdx.x; i < kTile; i += kThreads) out[blockIdx.x * kTile + i] = tile[i ^ 1] * 3;
}

__global__ void ByPipeline(const int* in, int* out, int tiles) {
  __shared__ int stages[kStages][kTile];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  const cg::thread_block block = cg::this_thread_block();
  auto pipeline = cuda::make_pipeline(block, &state);
  int fetched = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    for (; fetched < tiles && fetched < tile + kStages; ++fetched) {
      pipeline.producer_acquire();
      cuda::memcpy_async(block, stages[fetched % kStages], in + fetched * kTile,
                         sizeof(int) * kTile, pipeline);
      pipeline.producer_commit();
    }
    pipeline.consumer_wait();
    const int* const data = stages[tile % kStages];
    for (int i = threadIdx.x; i < kTile; i += kThreads)
      out[tile * kTile + i] = data[i] + data[(i + 1) % kTile];
    pipeline.consumer_release();
  }
}

int main() {
  const int count = kTile * kTiles;
  std::vector<int> in(count), got(count);
  for (int i = 0; i < count; ++i) in[i] = i * 7 - 1000;
  int *from, *to;
  CHECK(cudaMalloc(&from, count * sizeof(int)));
  CHECK(cudaMalloc(&to, count * sizeof(int)));
  CHECK(cudaMemcpy(from, in.data(), count * sizeof(int), cudaMemcpyDefault));
  const auto take = [&] {
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(got.data(), to, count * sizeof(int), cudaMemcpyDefault));
  };
  ByGroup<<<kTiles, kThreads>>>(from, to);
  take();
  for (int i = 0; i < count; ++i) REQUIRE(got[i] == in[i / kTile * kTile + kTile - 1 - i % kTile]);
  std::printf("group: ok\n");
  ByBarrier<<<kTiles, kThreads>>>(from, to);
  take();
  for (int i = 0; i < count; ++i) REQUIRE(got[i] == in[i ^ 1] * 3);
  std::printf("barrier: ok\n");
  ByPipeline<<<1, kThreads>>>(from, to, kTiles);
  take();
  for (int i = 0; i < count; ++i)
    REQUIRE(got[i] == in[i] + in[i / kTile * kTile + (i + 1) % kTile]);
  std::printf("pipeline: ok\n");
  CHECK(cudaFree(from));
  CHECK(cudaFree(to));
  std::printf("ok\n");
}
