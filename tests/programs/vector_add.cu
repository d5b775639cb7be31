// Adds two vectors of floats and two of 32-bit integers, with sizes that do not fill the last
// block.
#include "check.h"

template <typename T>
__global__ void Add(const T* a, const T* b, T* sum, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = a[i] + b[i];
}

template <typename T, typename Make>
void Run(const char* what, int count, Make make) {
  check::Random random(count);
  std::vector<T> a(count), b(count), want(count);
  for (int i = 0; i < count; ++i) {
    a[i] = make(random);
    b[i] = make(random);
    want[i] = a[i] + b[i];
  }
  T* device_a = check::Upload(a);
  T* device_b = check::Upload(b);
  T* device_sum = check::Zeroed<T>(count);
  Add<<<(count + 255) / 256, 256>>>(device_a, device_b, device_sum, count);
  CHECK(cudaGetLastError());
  check::Compare(what, check::Download(device_sum, count), want);
  CHECK(cudaFree(device_a));
  CHECK(cudaFree(device_b));
  CHECK(cudaFree(device_sum));
}

int main() {
  Run<float>("float", 100003, [](check::Random& r) { return r.NextFloat() * 1000.0f; });
  Run<double>("double", 50001, [](check::Random& r) { return r.NextFloat() * 1e9; });
  Run<std::uint32_t>("uint32", 65536, [](check::Random& r) { return r.Next32(); });
  Run<std::uint32_t>("one", 1, [](check::Random& r) { return r.Next32(); });
  return check::Ok();
}
