// A histogram with shared-memory atomics that is merged into global memory. Also shared atomics of
// other types.
#include "check.h"

constexpr int kCount = 50000;
constexpr int kBins = 256;
constexpr int kBlocks = 12;

__global__ void Histogram(const unsigned char* data, int count, unsigned int* bins) {
  __shared__ unsigned int local[kBins];
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) local[i] = 0;
  __syncthreads();
  int stride = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    atomicAdd(&local[data[i]], 1u);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

__global__ void Others(const int* data, long long* out) {
  __shared__ int minimum, maximum;
  __shared__ unsigned long long sum;
  __shared__ float fraction;
  __shared__ double wide_fraction;
  __shared__ unsigned int mask, winner;
  if (threadIdx.x == 0) {
    minimum = 0x7fffffff;
    maximum = -0x7fffffff;
    sum = 0;
    fraction = 0.0f;
    wide_fraction = 0.0;
    mask = 0;
    winner = 0xffffffffu;
  }
  __syncthreads();
  int value = data[blockIdx.x * blockDim.x + threadIdx.x];
  atomicMin(&minimum, value);
  atomicMax(&maximum, value);
  atomicAdd(&sum, static_cast<unsigned long long>(static_cast<long long>(value)));
  atomicAdd(&fraction, (value & 15) * 0.25f);
  atomicAdd(&wide_fraction, (value & 1023) * 0.125);
  atomicOr(&mask, 1u << (value & 31));
  // Exactly one thread of the block wins.
  bool won = atomicCAS(&winner, 0xffffffffu, threadIdx.x) == 0xffffffffu;
  int winners = __syncthreads_count(won);
  if (threadIdx.x == 0) {
    long long* row = out + blockIdx.x * 7;
    row[0] = minimum;
    row[1] = maximum;
    row[2] = static_cast<long long>(sum);
    row[3] = static_cast<long long>(fraction * 4);
    row[4] = static_cast<long long>(wide_fraction * 8);
    row[5] = mask;
    row[6] = winners;
  }
}

int main() {
  check::Random random(5);
  std::vector<unsigned char> data(kCount);
  std::vector<unsigned int> want(kBins, 0);
  for (auto& value : data) {
    value = static_cast<unsigned char>((random.Next32() & random.Next32()) >> 8);
    ++want[value];
  }
  unsigned char* device_data = check::Upload(data);
  unsigned int* bins = check::Zeroed<unsigned int>(kBins);
  Histogram<<<kBlocks, 128>>>(device_data, kCount, bins);
  CHECK(cudaGetLastError());
  check::Compare("histogram", check::Download(bins, kBins), want);

  constexpr int kThreads = 160;
  std::vector<int> values(kBlocks * kThreads);
  std::vector<long long> want_rows;
  for (int block = 0; block < kBlocks; ++block) {
    long long minimum = 0x7fffffff, maximum = -0x7fffffff, sum = 0, quarters = 0, eighths = 0,
              mask = 0;
    for (int i = 0; i < kThreads; ++i) {
      int value = static_cast<int>(random.Next32()) >> 4;
      values[block * kThreads + i] = value;
      minimum = value < minimum ? value : minimum;
      maximum = value > maximum ? value : maximum;
      sum += value;
      quarters += value & 15;
      eighths += value & 1023;
      mask |= 1ll << (value & 31);
    }
    want_rows.insert(want_rows.end(), {minimum, maximum, sum, quarters, eighths, mask, 1});
  }
  int* device_values = check::Upload(values);
  long long* rows = check::Zeroed<long long>(want_rows.size());
  Others<<<kBlocks, kThreads>>>(device_values, rows);
  CHECK(cudaGetLastError());
  check::Compare("others", check::Download(rows, want_rows.size()), want_rows);
  for (void* memory : {static_cast<void*>(device_data), static_cast<void*>(bins),
                       static_cast<void*>(device_values), static_cast<void*>(rows)}) {
    CHECK(cudaFree(memory));
  }
  return check::Ok();
}
