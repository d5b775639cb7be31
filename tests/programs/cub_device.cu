// CUB of the toolkit: device-wide reduction, scan, selection, histogram and radix sort.
#include <algorithm>
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
#include <iterator>

#include "check.h"

struct IsOdd {
  __host__ __device__ bool operator()(unsigned value) const { return value % 2 == 1; }
};

// Calls a CUB function twice: for the size of its scratch memory, and to do the work.
template <typename Function>
void WithScratch(Function function) {
  std::size_t bytes = 0;
  CHECK(function(nullptr, bytes));
  void* scratch = nullptr;
  CHECK(cudaMalloc(&scratch, std::max<std::size_t>(bytes, 1)));
  CHECK(function(scratch, bytes));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaFree(scratch));
}

int main() {
  constexpr int kCount = 8000;
  check::Random random(17);
  std::vector<unsigned> in(kCount), want(kCount);
  for (unsigned& value : in) value = random.Next32() >> 8;
  unsigned* device = check::Upload(in);
  unsigned* out = check::Zeroed<unsigned>(kCount);
  int* chosen = check::Zeroed<int>(256);

  WithScratch([&](void* scratch, std::size_t& bytes) {
    return cub::DeviceReduce::Sum(scratch, bytes, device, out, kCount);
  });
  unsigned sum = 0;
  for (unsigned value : in) sum += value;
  check::Compare("sum", check::Download(out, 1), {sum});

  WithScratch([&](void* scratch, std::size_t& bytes) {
    return cub::DeviceReduce::Max(scratch, bytes, device, out, kCount);
  });
  check::Compare("largest", check::Download(out, 1), {*std::max_element(in.begin(), in.end())});

  WithScratch([&](void* scratch, std::size_t& bytes) {
    return cub::DeviceScan::ExclusiveSum(scratch, bytes, device, out, kCount);
  });
  sum = 0;
  for (int i = 0; i < kCount; ++i) {
    want[i] = sum;
    sum += in[i];
  }
  check::Compare("scan", check::Download(out, kCount), want);

  WithScratch([&](void* scratch, std::size_t& bytes) {
    return cub::DeviceSelect::If(scratch, bytes, device, out, chosen, kCount, IsOdd());
  });
  want.clear();
  std::copy_if(in.begin(), in.end(), std::back_inserter(want), IsOdd());
  const int count = check::Download(chosen, 1)[0];
  REQUIRE(count == static_cast<int>(want.size()));
  check::Compare("selected", check::Download(out, count), want);

  WithScratch([&](void* scratch, std::size_t& bytes) {
    return cub::DeviceHistogram::HistogramEven(scratch, bytes, device, chosen, 65, 0u, 1u << 24,
                                               kCount);
  });
  std::vector<int> bins(64, 0);
  for (unsigned value : in) ++bins[value >> 18];
  check::Compare("histogram", check::Download(chosen, 64), bins);

  WithScratch([&](void* scratch, std::size_t& bytes) {
    return cub::DeviceRadixSort::SortKeysDescending(scratch, bytes, device, out, kCount);
  });
  std::sort(in.begin(), in.end(), std::greater<unsigned>());
  check::Compare("sorted", check::Download(out, kCount), in);
  CHECK(cudaFree(device));
  CHECK(cudaFree(out));
  CHECK(cudaFree(chosen));
  return check::Ok();
}
