// A thread's own values: indices and sizes in three dimensions, lane and warp numbers, sizes of the
// grid, and clocks that only go forward.
#include "check.h"

constexpr int kFields = 9;

__global__ void Describe(unsigned* out, unsigned* problems) {
  unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  unsigned size = blockDim.x * blockDim.y * blockDim.z;
  unsigned* row = out + (block * size + thread) * kFields;
  row[0] = threadIdx.x | threadIdx.y << 10 | threadIdx.z << 20;
  row[1] = blockIdx.x | blockIdx.y << 10 | blockIdx.z << 20;
  row[2] = blockDim.x | blockDim.y << 10 | blockDim.z << 20;
  row[3] = gridDim.x | gridDim.y << 10 | gridDim.z << 20;
  unsigned lane, sm, sms, grid_low;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  asm volatile("mov.u32 %0, %%nsmid;" : "=r"(sms));
  row[4] = lane;
  row[5] = warpSize;
  row[6] = thread / warpSize;
  row[7] = thread;
  row[8] = block;
  long long clock = clock64();
  unsigned long long time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  unsigned low = 0;
  for (unsigned i = 0; i < 20; ++i) low += i * lane;
  grid_low = low;
  unsigned long long later;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(later));
  if (clock64() < clock || later < time || sm >= sms || grid_low != 190 * lane)
    atomicAdd(problems, 1u);
}

void Test(dim3 grid, dim3 block) {
  const unsigned size = block.x * block.y * block.z, blocks = grid.x * grid.y * grid.z;
  unsigned* out = check::Zeroed<unsigned>(size * blocks * kFields);
  unsigned* problems = check::Zeroed<unsigned>(1);
  Describe<<<grid, block>>>(out, problems);
  CHECK(cudaGetLastError());
  std::vector<unsigned> want;
  for (unsigned b = 0; b < blocks; ++b) {
    for (unsigned t = 0; t < size; ++t) {
      want.push_back(t % block.x | t / block.x % block.y << 10 | t / block.x / block.y << 20);
      want.push_back(b % grid.x | b / grid.x % grid.y << 10 | b / grid.x / grid.y << 20);
      want.push_back(block.x | block.y << 10 | block.z << 20);
      want.push_back(grid.x | grid.y << 10 | grid.z << 20);
      want.insert(want.end(), {t % 32, 32, t / 32, t, b});
    }
  }
  check::Compare("threads", check::Download(out, want.size()), want);
  REQUIRE(check::Download(problems, 1)[0] == 0);
  CHECK(cudaFree(out));
  CHECK(cudaFree(problems));
}

int main() {
  Test(dim3(5), dim3(70));
  Test(dim3(3, 4, 2), dim3(7, 5, 3));
  Test(dim3(1, 9, 1), dim3(1, 1, 64));
  Test(dim3(300), dim3(1));
  return check::Ok();
}
