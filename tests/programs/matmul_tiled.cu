// A 512 x 512 single-precision matrix product with shared-memory tiles. Every element is a chain of
// fused multiply-adds in order of k, so the CPU reference gives the same bits.
#include <cmath>

#include "check.h"

constexpr int kSize = 512;
constexpr int kTile = 16;

__global__ void Multiply(const float* a, const float* b, float* c) {
  __shared__ float tile_a[kTile][kTile];
  __shared__ float tile_b[kTile][kTile];
  int row = blockIdx.y * kTile + threadIdx.y;
  int column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0.0f;
  for (int start = 0; start < kSize; start += kTile) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * kSize + start + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[(start + threadIdx.y) * kSize + column];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTile; ++k) {
      sum = __fmaf_rn(tile_a[threadIdx.y][k], tile_b[k][threadIdx.x], sum);
    }
    __syncthreads();
  }
  c[row * kSize + column] = sum;
}

int main() {
  check::Random random(512);
  std::vector<float> a(kSize * kSize), b(kSize * kSize);
  for (float& value : a) value = random.NextFloat();
  for (float& value : b) value = random.NextFloat();

  float* device_a = check::Upload(a);
  float* device_b = check::Upload(b);
  float* device_c = check::Zeroed<float>(kSize * kSize);
  Multiply<<<dim3(kSize / kTile, kSize / kTile), dim3(kTile, kTile)>>>(device_a, device_b,
                                                                       device_c);
  CHECK(cudaGetLastError());
  std::vector<float> got = check::Download(device_c, kSize * kSize);

  std::vector<float> want(kSize * kSize, 0.0f);
  for (int row = 0; row < kSize; ++row) {
    for (int k = 0; k < kSize; ++k) {
      float factor = a[row * kSize + k];
      for (int column = 0; column < kSize; ++column) {
        float& sum = want[row * kSize + column];
        sum = std::fmaf(factor, b[k * kSize + column], sum);
      }
    }
  }
  check::Compare("product", got, want);
  CHECK(cudaFree(device_a));
  CHECK(cudaFree(device_b));
  CHECK(cudaFree(device_c));
  return check::Ok();
}
