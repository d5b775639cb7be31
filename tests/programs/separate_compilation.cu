// Relocatable device code (-rdc=true). A kernel of one source calls functions and uses variables of
// another.
#include "check.h"
#include "separate_compilation.h"

__device__ int calls_seen_here = 0;

__global__ void Use(const int* in, int* out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  int value = Polynomial(in[i]);
  Transformer transform = transformers[i % 3];
  out[i] = transform(value) + shared_table[i % 4];
  CountCall(&calls_seen_here);
}

int main() {
  constexpr int kCount = 1000;
  std::vector<int> in(kCount), want(kCount);
  const int table[4] = {5, -6, 7, -8};
  for (int i = 0; i < kCount; ++i) {
    in[i] = i - 500;
    int value = in[i] * in[i] * 3 - in[i] * 2 + 1;
    int transformed = i % 3 == 0 ? value + 1 : i % 3 == 1 ? value * 2 : ~value;
    want[i] = transformed + table[i % 4];
  }
  int* device_in = check::Upload(in);
  int* out = check::Zeroed<int>(kCount);
  Use<<<(kCount + 127) / 128, 128>>>(device_in, out, kCount);
  CHECK(cudaGetLastError());
  check::Compare("results", check::Download(out, kCount), want);
  int calls = 0;
  CHECK(cudaMemcpyFromSymbol(&calls, calls_seen_here, sizeof calls));
  REQUIRE(calls == kCount);

  // Changes the other source's variable through its symbol.
  const int other[4] = {1000, 2000, 3000, 4000};
  CHECK(cudaMemcpyToSymbol(shared_table, other, sizeof other));
  Use<<<(kCount + 127) / 128, 128>>>(device_in, out, kCount);
  for (int i = 0; i < kCount; ++i) want[i] += other[i % 4] - table[i % 4];
  check::Compare("changed", check::Download(out, kCount), want);
  CHECK(cudaFree(device_in));
  CHECK(cudaFree(out));
  return check::Ok();
}
