// An exclusive prefix sum over many blocks in three kernels: within blocks (an up-sweep and a
// down-sweep in shared memory), over the blocks' totals, and the addition of both.
#include "check.h"

constexpr int kBlock = 256;        // threads
constexpr int kPart = 2 * kBlock;  // values of a block

// Writes the exclusive sums of each part to `out` and the part's total to `totals`.
__global__ void ScanParts(const unsigned* in, unsigned* out, unsigned* totals, int count) {
  __shared__ unsigned values[kPart];
  int base = blockIdx.x * kPart, t = threadIdx.x;
  for (int i = t; i < kPart; i += kBlock) values[i] = base + i < count ? in[base + i] : 0;
  int stride = 1;
  for (int pairs = kBlock; pairs > 0; pairs /= 2) {
    __syncthreads();
    if (t < pairs) values[stride * (2 * t + 2) - 1] += values[stride * (2 * t + 1) - 1];
    stride *= 2;
  }
  __syncthreads();
  if (t == 0) {
    if (totals != nullptr) totals[blockIdx.x] = values[kPart - 1];
    values[kPart - 1] = 0;
  }
  for (int pairs = 1; pairs <= kBlock; pairs *= 2) {
    stride /= 2;
    __syncthreads();
    if (t < pairs) {
      int low = stride * (2 * t + 1) - 1, high = stride * (2 * t + 2) - 1;
      unsigned left = values[low];
      values[low] = values[high];
      values[high] += left;
    }
  }
  __syncthreads();
  for (int i = t; i < kPart; i += kBlock) {
    if (base + i < count) out[base + i] = values[i];
  }
}

__global__ void AddTotals(unsigned* out, const unsigned* before, int count) {
  int i = blockIdx.x * kPart + threadIdx.x;
  if (i < count) out[i] += before[blockIdx.x];
  i += kBlock;
  if (i < count) out[i] += before[blockIdx.x];
}

int main() {
  for (int count : {1, 511, 512, 513, 60000}) {
    check::Random random(count);
    std::vector<unsigned> in(count), want(count);
    unsigned sum = 0;
    for (int i = 0; i < count; ++i) {
      in[i] = random.Next32();
      want[i] = sum;
      sum += in[i];
    }
    int parts = (count + kPart - 1) / kPart;
    REQUIRE(parts <= kPart);
    unsigned* device = check::Upload(in);
    unsigned* out = check::Zeroed<unsigned>(count);
    unsigned* totals = check::Zeroed<unsigned>(parts);
    unsigned* before = check::Zeroed<unsigned>(parts);
    ScanParts<<<parts, kBlock>>>(device, out, totals, count);
    ScanParts<<<1, kBlock>>>(totals, before, nullptr, parts);
    AddTotals<<<parts, kBlock>>>(out, before, count);
    CHECK(cudaGetLastError());
    check::Compare("sums", check::Download(out, count), want);
    for (unsigned* memory : {device, out, totals, before}) CHECK(cudaFree(memory));
  }
  return check::Ok();
}
