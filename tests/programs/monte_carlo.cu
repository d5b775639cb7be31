// Monte Carlo in whole numbers. Every thread draws points with its own generator and counts those
// inside a quarter of a circle.
#include "check.h"

constexpr int kThreads = 2048;
constexpr int kDraws = 200;

__host__ __device__ unsigned CountInside(int thread) {
  check::Random random(thread * 7919 + 1);
  unsigned inside = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::uint64_t bits = random.Next64();
    std::uint64_t x = bits & 0xffffff, y = bits >> 32 & 0xffffff;
    if (x * x + y * y < (1ull << 48)) ++inside;
  }
  return inside;
}

__global__ void Draw(unsigned* counts, unsigned long long* total) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  counts[i] = CountInside(i);
  atomicAdd(total, static_cast<unsigned long long>(counts[i]));
}

int main() {
  unsigned* counts = check::Zeroed<unsigned>(kThreads);
  auto* total = check::Zeroed<unsigned long long>(1);
  Draw<<<kThreads / 128, 128>>>(counts, total);
  CHECK(cudaGetLastError());
  std::vector<unsigned> want(kThreads);
  unsigned long long want_total = 0;
  for (int i = 0; i < kThreads; ++i) want_total += want[i] = CountInside(i);
  check::Compare("counts", check::Download(counts, kThreads), want);
  check::Compare("total", check::Download(total, 1), {want_total});
  std::printf("pi is about %.4f\n", 4.0 * want_total / (static_cast<double>(kThreads) * kDraws));
  CHECK(cudaFree(counts));
  CHECK(cudaFree(total));
  return check::Ok();
}
