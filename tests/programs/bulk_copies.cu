// Bulk asynchronous copies (compute capability 9.0): through barriers of libcu++, in a pipeline of
// stages, between the blocks of a cluster, and with reductions in memory.
#include <cooperative_groups.h>

#include <cuda/barrier>
#include <cuda/ptx>

#include "check.h"

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int kThreads = 128;
constexpr int kTile = 1024;
constexpr int kTiles = 20;
constexpr int kStages = 3;

// Every block fetches its tile with a copy that libcu++ chooses, and reverses it.
__global__ void Reverse(const int* in, int* out) {
  __shared__ alignas(16) int tile[kTile];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) init(&barrier, kThreads);
  __syncthreads();
  if (threadIdx.x == 0)
    cuda::memcpy_async(tile, in + blockIdx.x * kTile, cuda::aligned_size_t<16>(sizeof tile),
                       barrier);
  barrier.arrive_and_wait();
  for (int i = threadIdx.x; i < kTile; i += kThreads)
    out[blockIdx.x * kTile + i] = tile[kTile - 1 - i];
}

// One block fetches all tiles in stages, triples them, and stores each tile while it works on the
// next.
__global__ void Stream(const int* in, int* out) {
  __shared__ alignas(128) int fetched[kStages][kTile], results[2][kTile];
  __shared__ Barrier full[kStages];
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) init(&barrier, kThreads);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();
  Barrier::arrival_token tokens[kStages];
  const auto fetch = [&](int tile) {
    Barrier& barrier = full[tile % kStages];
    if (threadIdx.x == 0) {
      cuda::device::memcpy_async_tx(fetched[tile % kStages], in + tile * kTile,
                                    cuda::aligned_size_t<16>(kTile * sizeof(int)), barrier);
      tokens[tile % kStages] = cuda::device::barrier_arrive_tx(barrier, 1, kTile * sizeof(int));
    } else {
      tokens[tile % kStages] = barrier.arrive();
    }
  };
  for (int tile = 0; tile < kStages; ++tile) fetch(tile);
  for (int tile = 0; tile < kTiles; ++tile) {
    full[tile % kStages].wait(std::move(tokens[tile % kStages]));
    if (threadIdx.x == 0) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<1>{});
    __syncthreads();
    for (int i = threadIdx.x; i < kTile; i += kThreads)
      results[tile % 2][i] = 3 * fetched[tile % kStages][i];
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
      ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + tile * kTile,
                         results[tile % 2], kTile * sizeof(int));
      ptx::cp_async_bulk_commit_group();
    }
    if (tile + kStages < kTiles) fetch(tile + kStages);
  }
  if (threadIdx.x == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
}

// All blocks add their counts of values to one histogram.
__global__ void Histogram(const int* in, unsigned* bins) {
  __shared__ alignas(128) unsigned counts[256];
  for (int i = threadIdx.x; i < 256; i += kThreads) counts[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < kTile; i += kThreads)
    atomicAdd(&counts[in[blockIdx.x * kTile + i] & 0xff], 1);
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_add, bins, counts,
                              sizeof counts);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
  }
}

// The blocks of a cluster pass tiles on to their neighbours until every block has seen every tile.
__global__ void __cluster_dims__(4, 1, 1) Rotate(const int* in, int* out) {
  __shared__ alignas(128) int tiles[2][kTile];
  __shared__ Barrier arrived[2];
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned next = (cluster.block_rank() + 1) % 4;
  if (threadIdx.x == 0) {
    for (Barrier& barrier : arrived) init(&barrier, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  for (int i = threadIdx.x; i < kTile; i += kThreads) tiles[0][i] = in[blockIdx.x * kTile + i];
  int mix[kTile / kThreads] = {};
  for (int round = 0; round < 4; ++round) {
    int* const own = tiles[round % 2];
    ptx::fence_proxy_async(ptx::space_shared);
    cluster.sync();
    if (round < 3 && threadIdx.x == 0) {
      const int slot = (round + 1) % 2;
      std::uint64_t* const barrier = cuda::device::barrier_native_handle(arrived[slot]);
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, barrier,
                                     kTile * sizeof(int));
      ptx::cp_async_bulk(ptx::space_cluster, ptx::space_shared,
                         cluster.map_shared_rank(tiles[slot], next), own, kTile * sizeof(int),
                         cluster.map_shared_rank(barrier, next));
    }
    for (int i = 0; i < kTile / kThreads; ++i)
      mix[i] = mix[i] * 5 + own[threadIdx.x + i * kThreads];
    if (round < 3) {
      std::uint64_t* const barrier = cuda::device::barrier_native_handle(arrived[(round + 1) % 2]);
      while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, barrier,
                                            round / 2)) {
      }
    }
  }
  for (int i = 0; i < kTile / kThreads; ++i)
    out[blockIdx.x * kTile + threadIdx.x + i * kThreads] = mix[i];
  cluster.sync();
}

int main() {
  constexpr int kCount = kTile * kTiles;
  check::Random random(9);
  std::vector<int> in(kCount), want(kCount);
  for (int& value : in) value = static_cast<int>(random.Next32() % 100000);
  int* const from = check::Upload(in);
  int* const to = check::Zeroed<int>(kCount);
  const auto compare = [&](const char* what) {
    CHECK(cudaGetLastError());
    check::Compare(what, check::Download(to, kCount), want);
  };

  Reverse<<<kTiles, kThreads>>>(from, to);
  for (int i = 0; i < kCount; ++i) want[i] = in[i / kTile * kTile + kTile - 1 - i % kTile];
  compare("reversed");

  Stream<<<1, kThreads>>>(from, to);
  for (int i = 0; i < kCount; ++i) want[i] = 3 * in[i];
  compare("streamed");

  unsigned* const bins = check::Zeroed<unsigned>(256);
  Histogram<<<kTiles, kThreads>>>(from, bins);
  CHECK(cudaGetLastError());
  std::vector<unsigned> counts(256);
  for (int value : in) ++counts[value & 0xff];
  check::Compare("histogram", check::Download(bins, 256), counts);

  Rotate<<<kTiles, kThreads>>>(from, to);
  for (int i = 0; i < kCount; ++i) {
    const int block = i / kTile, first = block / 4 * 4;
    int mix = 0;
    for (int round = 0; round < 4; ++round) {
      const int owner = first + (block - first + 4 - round) % 4;
      mix = mix * 5 + in[owner * kTile + i % kTile];
    }
    want[i] = mix;
  }
  compare("rotated");
  CHECK(cudaFree(from));
  CHECK(cudaFree(to));
  CHECK(cudaFree(bins));
  return check::Ok();
}
