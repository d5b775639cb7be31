// Warp shuffles: all four forms with several widths and types, reductions and scans over warps.
#include "check.h"

constexpr int kWarps = 6;
constexpr int kCount = kWarps * 32;
constexpr unsigned kAll = 0xffffffffu;

__global__ void Shuffles(const int* in, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int value = in[i], lane = threadIdx.x % 32, n = 0;
  auto put = [&](int result) { out[n++ * kCount + i] = result; };
  put(__shfl_sync(kAll, value, 5));
  put(__shfl_sync(kAll, value, lane * 7 + 3));
  put(__shfl_sync(kAll, value, lane + 1, 8));
  put(__shfl_up_sync(kAll, value, 1));
  put(__shfl_up_sync(kAll, value, 5, 16));
  put(__shfl_down_sync(kAll, value, 3));
  put(__shfl_down_sync(kAll, value, 2, 4));
  put(__shfl_xor_sync(kAll, value, 1));
  put(__shfl_xor_sync(kAll, value, 19));
  put(__shfl_xor_sync(kAll, value, 4, 8));
}

// The meaning of the forms above, lane by lane.
std::vector<int> ExpectedShuffles(const std::vector<int>& in) {
  std::vector<int> out;
  auto put = [&](auto source_of) {
    for (int i = 0; i < kCount; ++i) out.push_back(in[i / 32 * 32 + source_of(i % 32)]);
  };
  auto up = [](int lane, int delta, int width) {
    return lane % width < delta ? lane : lane - delta;
  };
  auto down = [](int lane, int delta, int width) {
    return lane % width + delta >= width ? lane : lane + delta;
  };
  put([](int) { return 5; });
  put([](int lane) { return (lane * 7 + 3) % 32; });
  put([](int lane) { return lane / 8 * 8 + (lane + 1) % 8; });
  put([&](int lane) { return up(lane, 1, 32); });
  put([&](int lane) { return up(lane, 5, 16); });
  put([&](int lane) { return down(lane, 3, 32); });
  put([&](int lane) { return down(lane, 2, 4); });
  put([](int lane) { return lane ^ 1; });
  put([](int lane) { return lane ^ 19; });
  put([](int lane) { return lane ^ 4; });
  return out;
}

template <typename T>
__global__ void Scan(const T* in, T* inclusive, T* totals) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int lane = threadIdx.x % 32;
  T sum = in[i];
  for (int delta = 1; delta < 32; delta *= 2) {
    T below = __shfl_up_sync(kAll, sum, delta);
    if (lane >= delta) sum += below;
  }
  inclusive[i] = sum;
  T total = in[i];
  for (int mask = 16; mask > 0; mask /= 2) total += __shfl_xor_sync(kAll, total, mask);
  totals[i] = total;
}

template <typename T>
void TestScan(const char* what, T unit) {
  check::Random random(sizeof(T));
  std::vector<T> in(kCount), inclusive(kCount), totals(kCount);
  for (T& value : in)
    value = static_cast<T>(static_cast<int>(random.Next32() % 2001) - 1000) * unit;
  for (int warp = 0; warp < kWarps; ++warp) {
    T sum = 0;
    for (int lane = 0; lane < 32; ++lane) inclusive[warp * 32 + lane] = sum += in[warp * 32 + lane];
    for (int lane = 0; lane < 32; ++lane) totals[warp * 32 + lane] = sum;
  }
  T* device_in = check::Upload(in);
  T* device_inclusive = check::Zeroed<T>(kCount);
  T* device_totals = check::Zeroed<T>(kCount);
  Scan<<<2, kCount / 2>>>(device_in, device_inclusive, device_totals);
  CHECK(cudaGetLastError());
  check::Compare(what, check::Download(device_inclusive, kCount), inclusive);
  check::Compare(what, check::Download(device_totals, kCount), totals);
  CHECK(cudaFree(device_in));
  CHECK(cudaFree(device_inclusive));
  CHECK(cudaFree(device_totals));
}

// Only some lanes take part. The others run other code.
__global__ void Partial(const int* in, int* out) {
  int lane = threadIdx.x;
  int value = in[lane];
  if (lane % 3 == 0) {
    constexpr unsigned kThirds = 0x49249249u;
    out[lane] = __shfl_sync(kThirds, value, (lane + 3) % 33 % 32);
  } else {
    out[lane] = -value;
  }
}

int main() {
  check::Random random(1);
  std::vector<int> in(kCount);
  for (int& value : in) value = static_cast<int>(random.Next32());
  int* device_in = check::Upload(in);
  std::vector<int> want = ExpectedShuffles(in);
  int* device_out = check::Zeroed<int>(want.size());
  Shuffles<<<3, kCount / 3>>>(device_in, device_out);
  CHECK(cudaGetLastError());
  check::Compare("shuffles", check::Download(device_out, want.size()), want);

  TestScan<int>("int", 1);
  TestScan<unsigned long long>("unsigned long long", 1ull << 33);
  TestScan<float>("float", 0.25f);
  TestScan<double>("double", 1.0 / 1024);

  Partial<<<1, 32>>>(device_in, device_out);
  CHECK(cudaGetLastError());
  std::vector<int> partial(32);
  for (int lane = 0; lane < 32; ++lane) {
    partial[lane] = lane % 3 == 0 ? in[(lane + 3) % 33 % 32]
                                  : static_cast<int>(0u - static_cast<unsigned>(in[lane]));
  }
  check::Compare("partial", check::Download(device_out, 32), partial);
  CHECK(cudaFree(device_in));
  CHECK(cudaFree(device_out));
  return check::Ok();
}
