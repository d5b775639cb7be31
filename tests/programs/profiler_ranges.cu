// Marks its work for a profiler that does not run: NVTX ranges, and cudaProfilerStart and Stop.
#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>

#include "check.h"

__global__ void AddOne(int* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) ++values[i];
}

int main() {
  constexpr int kCount = 1000, kRounds = 3;
  CHECK(cudaProfilerStart());
  nvtxNameOsThreadA(1, "main");
  int* const device = check::Zeroed<int>(kCount);
  const nvtxRangeId_t whole = nvtxRangeStartA("whole");
  for (int round = 0; round < kRounds; ++round) {
    nvtxRangePushA("round");
    AddOne<<<(kCount + 127) / 128, 128>>>(device, kCount);
    CHECK(cudaGetLastError());
    nvtxMarkA("launched");
    nvtxRangePop();
  }
  CHECK(cudaProfilerStop());
  nvtxRangeEnd(whole);
  CHECK(cudaProfilerStop());
  CHECK(cudaProfilerStart());
  const std::vector<int> values = check::Download(device, kCount);
  std::printf("first %d, last %d\n", values.front(), values.back());
  CHECK(cudaFree(device));
  return check::Ok();
}
