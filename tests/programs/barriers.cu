// Barriers within a block: counting and voting barriers, and named barriers between some of the
// warps. Also fences, and a result that the last block to finish collects.
#include "check.h"

constexpr int kThreads = 192;
constexpr int kBlocks = 9;

__global__ void Votes(const int* in, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int count = __syncthreads_count(in[i] > 50);
  int all = __syncthreads_and(in[i] >= 0);
  int any = __syncthreads_or(in[i] == 99);
  int none = __syncthreads_or(in[i] > 1000);
  out[i] = count * 8 + (all != 0) * 4 + (any != 0) * 2 + (none != 0);
}

// The first warps produce and the others consume. Named barriers 1 and 2 pass a buffer back and
// forth.
__global__ void Handover(int* out) {
  __shared__ int buffer[96];
  int t = threadIdx.x;
  for (int round = 0; round < 6; ++round) {
    if (t < 96) {
      buffer[t] = t * 100 + round;
      asm volatile("bar.arrive 1, 192;" ::: "memory");
      asm volatile("bar.sync 2, 192;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 192;" ::: "memory");
      out[round * 96 + (t - 96)] = buffer[191 - t];
      asm volatile("bar.arrive 2, 192;" ::: "memory");
    }
  }
}

__device__ unsigned finished = 0;

// The block that finishes last adds up the results of all blocks.
__global__ void LastBlock(const int* in, int* partial, int* total) {
  __shared__ int sum;
  __shared__ bool last;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, in[blockIdx.x * blockDim.x + threadIdx.x]);
  __syncthreads();
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
    __threadfence();
    last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    int all = 0;
    for (unsigned block = 0; block < gridDim.x; ++block) {
      all += static_cast<volatile int*>(partial)[block];
    }
    *total += all;
  }
}

int main() {
  constexpr int kCount = kThreads * kBlocks;
  check::Random random(31);
  std::vector<int> in(kCount), want(kCount);
  int sum = 0;
  for (int block = 0; block < kBlocks; ++block) {
    int count = 0, all = 1, any = 0;
    for (int t = 0; t < kThreads; ++t) {
      int& value = in[block * kThreads + t];
      value = static_cast<int>(random.Next32() % (block % 2 == 0 ? 100 : 99)) -
              (block == 4 && t == 7 ? 100 : 0);
      count += value > 50;
      all &= value >= 0;
      any |= value == 99;
      sum += value;
    }
    for (int t = 0; t < kThreads; ++t) want[block * kThreads + t] = count * 8 + all * 4 + any * 2;
  }
  int* device = check::Upload(in);
  int* out = check::Zeroed<int>(kCount);
  Votes<<<kBlocks, kThreads>>>(device, out);
  CHECK(cudaGetLastError());
  check::Compare("votes", check::Download(out, kCount), want);

  Handover<<<1, kThreads>>>(out);
  CHECK(cudaGetLastError());
  std::vector<int> handed;
  for (int round = 0; round < 6; ++round) {
    for (int t = 96; t < 192; ++t) handed.push_back((191 - t) * 100 + round);
  }
  check::Compare("handed over", check::Download(out, handed.size()), handed);

  int* total = check::Zeroed<int>(1);
  for (int round = 0; round < 3; ++round) LastBlock<<<kBlocks, kThreads>>>(device, out, total);
  CHECK(cudaGetLastError());
  check::Compare("total", check::Download(total, 1), {3 * sum});
  CHECK(cudaFree(device));
  CHECK(cudaFree(out));
  CHECK(cudaFree(total));
  return check::Ok();
}
