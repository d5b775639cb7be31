// Thrust of the toolkit: sort, sort by key, reduce, scan and transform.
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

#include <algorithm>
#include <numeric>

#include "check.h"

struct Mix {
  __host__ __device__ int operator()(int value) const { return (value ^ 0x2a) * 3; }
};

std::vector<int> ToVector(const thrust::device_vector<int>& device) {
  std::vector<int> host(device.size());
  thrust::copy(device.begin(), device.end(), host.begin());
  return host;
}

int main() {
  constexpr int kCount = 6000;
  check::Random random(3);
  std::vector<int> host(kCount);
  for (int& value : host) value = static_cast<int>(random.Next32() % 100000) - 50000;

  thrust::device_vector<int> device(host.begin(), host.end());
  thrust::device_vector<int> mixed(kCount), sums(kCount), positions(kCount);
  thrust::transform(device.begin(), device.end(), mixed.begin(), Mix());
  std::vector<int> want(kCount);
  std::transform(host.begin(), host.end(), want.begin(), Mix());
  check::Compare("transform", ToVector(mixed), want);

  thrust::inclusive_scan(device.begin(), device.end(), sums.begin());
  std::partial_sum(host.begin(), host.end(), want.begin());
  check::Compare("scan", ToVector(sums), want);

  int total = thrust::reduce(device.begin(), device.end(), 0, thrust::plus<int>());
  int want_total = std::accumulate(host.begin(), host.end(), 0);
  check::Compare("reduce", &total, &want_total, 1);

  // A stable sort by key, with the positions as values.
  thrust::copy_n(thrust::counting_iterator<int>(0), kCount, positions.begin());
  thrust::device_vector<int> keys = device;
  thrust::stable_sort_by_key(keys.begin(), keys.end(), positions.begin());
  std::vector<int> want_positions(kCount);
  std::iota(want_positions.begin(), want_positions.end(), 0);
  std::stable_sort(want_positions.begin(), want_positions.end(),
                   [&](int a, int b) { return host[a] < host[b]; });
  check::Compare("positions", ToVector(positions), want_positions);

  thrust::sort(device.begin(), device.end());
  std::sort(host.begin(), host.end());
  check::Compare("sort", ToVector(device), host);
  return check::Ok();
}
