// Warp votes and matches: ballot, any, all, match_any, match_all, with full and partial masks, and
// the lane masks in special registers.
#include "check.h"

constexpr int kWarps = 8;
constexpr int kCount = kWarps * 32;
constexpr int kOutputs = 14;
constexpr unsigned kAll = 0xffffffffu;

__global__ void Votes(const int* in, const long long* wide, unsigned* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int lane = threadIdx.x % 32, value = in[i], n = 0;
  auto put = [&](unsigned result) { out[n++ * kCount + i] = result; };
  put(__ballot_sync(kAll, value & 1));
  put(__any_sync(kAll, value == 3));
  put(__all_sync(kAll, value < 7));
  put(__match_any_sync(kAll, value));
  put(__match_any_sync(kAll, wide[i]));
  int same = 0;
  put(__match_all_sync(kAll, value >> 3, &same));
  put(same);
  put(__match_all_sync(kAll, wide[i], &same));
  put(same);
  // The lanes of each branch vote among themselves.
  unsigned odd = __ballot_sync(kAll, lane & 1);
  unsigned result;
  if (lane & 1) {
    result = __ballot_sync(odd, value > 2);
  } else {
    result = __ballot_sync(~odd, value <= 2) | __any_sync(~odd, value == 5) << 31;
  }
  __syncwarp();
  put(result);
  unsigned below, at_or_below, above;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  asm("mov.u32 %0, %%lanemask_le;" : "=r"(at_or_below));
  asm("mov.u32 %0, %%lanemask_gt;" : "=r"(above));
  put(below);
  put(at_or_below);
  put(above);
  // The first lane of each group of equal values counts the group.
  unsigned group = __match_any_sync(kAll, value);
  put(__ffs(group) - 1 == lane ? __popc(group) : 0);
}

std::vector<unsigned> Expected(const std::vector<int>& in, const std::vector<long long>& wide) {
  std::vector<unsigned> out(kOutputs * kCount);
  for (int i = 0; i < kCount; ++i) {
    const int *values = &in[i / 32 * 32], lane = i % 32, value = in[i];
    const long long* wides = &wide[i / 32 * 32];
    auto mask = [](auto holds) {
      unsigned bits = 0;
      for (int other = 0; other < 32; ++other) bits |= (holds(other) ? 1u : 0u) << other;
      return bits;
    };
    int n = 0;
    auto put = [&](unsigned result) { out[n++ * kCount + i] = result; };
    put(mask([&](int k) { return values[k] & 1; }));
    put(mask([&](int k) { return values[k] == 3; }) != 0);
    put(mask([&](int k) { return values[k] < 7; }) == kAll);
    unsigned group = mask([&](int k) { return values[k] == value; });
    put(group);
    put(mask([&](int k) { return wides[k] == wides[lane]; }));
    bool same = mask([&](int k) { return values[k] >> 3 == value >> 3; }) == kAll;
    put(same ? kAll : 0);
    put(same);
    bool same_wide = mask([&](int k) { return wides[k] == wides[lane]; }) == kAll;
    put(same_wide ? kAll : 0);
    put(same_wide);
    if (lane & 1) {
      put(mask([&](int k) { return (k & 1) && values[k] > 2; }));
    } else {
      unsigned five = mask([&](int k) { return !(k & 1) && values[k] == 5; }) != 0;
      put(mask([&](int k) { return !(k & 1) && values[k] <= 2; }) | five << 31);
    }
    put((1u << lane) - 1);
    put(((1u << lane) - 1) | 1u << lane);
    put(~(((1u << lane) - 1) | 1u << lane));
    put(__builtin_ctz(group) == lane ? __builtin_popcount(group) : 0);
  }
  return out;
}

int main() {
  check::Random random(77);
  std::vector<int> in(kCount);
  std::vector<long long> wide(kCount);
  for (int i = 0; i < kCount; ++i) {
    int warp = i / 32;
    in[i] = static_cast<int>(random.Next32() % (warp + 3)) + (warp == 7 ? 8 * (i % 2) : 0);
    wide[i] = warp % 2 == 0 ? 0x500000007ll : static_cast<long long>(random.Next32() % 4) << 32 | 1;
  }
  int* device_in = check::Upload(in);
  long long* device_wide = check::Upload(wide);
  unsigned* device_out = check::Zeroed<unsigned>(kOutputs * kCount);
  Votes<<<2, kCount / 2>>>(device_in, device_wide, device_out);
  CHECK(cudaGetLastError());
  check::Compare("votes", check::Download(device_out, kOutputs * kCount), Expected(in, wide));
  CHECK(cudaFree(device_in));
  CHECK(cudaFree(device_wide));
  CHECK(cudaFree(device_out));
  return check::Ok();
}
