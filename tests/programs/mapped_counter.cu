// Host memory that kernels update with atomics: counters, maxima and a list that grows. The host
// reads it afterwards without a copy.
#include <algorithm>

#include "check.h"

constexpr int kThreads = 4096;

struct Counters {
  unsigned int count;
  int largest;
  unsigned long long sum;
  unsigned int used;
};

__global__ void Update(Counters* counters, unsigned* list, unsigned round) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned value = (i + round) * 2654435761u;
  atomicAdd_system(&counters->count, 1u);
  atomicMax_system(&counters->largest, static_cast<int>(value >> 3));
  atomicAdd_system(&counters->sum, static_cast<unsigned long long>(value));
  if (value % 16 == 0) list[atomicAdd_system(&counters->used, 1u)] = value;
  __threadfence_system();
}

int main() {
  Counters* counters = nullptr;
  unsigned* list = nullptr;
  CHECK(cudaHostAlloc(&counters, sizeof(Counters), cudaHostAllocMapped));
  CHECK(cudaHostAlloc(&list, kThreads * 4 * sizeof(unsigned), cudaHostAllocMapped));
  Counters* device_counters = nullptr;
  unsigned* device_list = nullptr;
  CHECK(cudaHostGetDevicePointer(&device_counters, counters, 0));
  CHECK(cudaHostGetDevicePointer(&device_list, list, 0));
  *counters = {0, -1, 0, 0};
  unsigned want_count = 0;
  unsigned long long want_sum = 0;
  int want_largest = -1;
  std::vector<unsigned> want_list;
  for (unsigned round = 0; round < 4; ++round) {
    Update<<<kThreads / 128, 128>>>(device_counters, device_list, round * 5000);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < kThreads; ++i) {
      unsigned value = (i + round * 5000) * 2654435761u;
      ++want_count;
      want_largest = std::max(want_largest, static_cast<int>(value >> 3));
      want_sum += value;
      if (value % 16 == 0) want_list.push_back(value);
    }
    check::Compare("count", &counters->count, &want_count, 1);
    check::Compare("largest", &counters->largest, &want_largest, 1);
    check::Compare("sum", &counters->sum, &want_sum, 1);
    // The host takes part between the kernels.
    counters->count += 7;
    want_count += 7;
  }
  // The machine chooses the order of the list.
  REQUIRE(counters->used == want_list.size());
  std::vector<unsigned> got(list, list + counters->used);
  std::sort(got.begin(), got.end());
  std::sort(want_list.begin(), want_list.end());
  check::Compare("list", got, want_list);
  CHECK(cudaFreeHost(counters));
  CHECK(cudaFreeHost(list));
  return check::Ok();
}
