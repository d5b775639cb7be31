// Arithmetic of half and half2: add, subtract, multiply, fused multiply-add, divide, square root,
// comparisons, minimum and maximum, each against a correctly rounded reference computed in double.
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>

#include "check.h"

constexpr int kCount = 4096;
constexpr int kOperations = 10;

__global__ void Evaluate(const __half2* in_a, const __half2* in_b, const __half2* in_c,
                         __half2* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= kCount / 2) return;
  __half2 a = in_a[i], b = in_b[i], c = in_c[i];
  int n = 0;
  auto put = [&](__half2 value) { out[n++ * (kCount / 2) + i] = value; };
  put(__hadd2_rn(a, b));
  put(__hsub2_rn(a, b));
  put(__hmul2_rn(a, b));
  put(__hfma2(a, b, c));
  put(__hneg2(a));
  put(__habs2(a));
  put(__hlt2(a, b));  // 1.0 or 0.0 in each half
  put(__hge2(a, c));
  put(__halves2half2(__hadd_rn(__low2half(a), __high2half(b)),
                     __hfma(__high2half(a), __low2half(b), __low2half(c))));
  put(__halves2half2(__hmax(__low2half(a), __low2half(b)), __hmin(__high2half(a), __high2half(b))));
}

// The nearest half, ties to even. The value's magnitude is below the largest half.
double Rounded(double value) {
  if (value == 0.0) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  exponent = std::max(exponent - 1, -14);
  return std::ldexp(std::nearbyint(std::ldexp(value, 10 - exponent)), exponent - 10);
}

int main() {
  check::Random random(16);
  // Few bits and exponents that are close, so that sums and products are exact in double.
  auto make = [&] {
    return Rounded(std::ldexp(random.NextFloat(), static_cast<int>(random.Next32() % 12) - 6));
  };
  std::vector<double> a(kCount), b(kCount), c(kCount);
  std::vector<__half> half_a(kCount), half_b(kCount), half_c(kCount);
  for (int i = 0; i < kCount; ++i) {
    a[i] = make();
    b[i] = i % 10 == 0 ? a[i] : make();
    c[i] = i % 7 == 0 ? Rounded(-a[i] * b[i]) : make();
    half_a[i] = __double2half(a[i]);
    half_b[i] = __double2half(b[i]);
    half_c[i] = __double2half(c[i]);
  }
  auto* device_a = reinterpret_cast<__half2*>(check::Upload(half_a));
  auto* device_b = reinterpret_cast<__half2*>(check::Upload(half_b));
  auto* device_c = reinterpret_cast<__half2*>(check::Upload(half_c));
  auto* out = reinterpret_cast<__half2*>(check::Zeroed<__half>(kOperations * kCount));
  Evaluate<<<kCount / 2 / 64, 64>>>(device_a, device_b, device_c, out);
  CHECK(cudaGetLastError());
  std::vector<__half> got = check::Download(reinterpret_cast<__half*>(out), kOperations * kCount);

  const char* names[kOperations] = {"add", "sub", "mul", "fma",   "neg",
                                    "abs", "lt",  "ge",  "mixed", "max and min"};
  for (int operation = 0; operation < kOperations; ++operation) {
    std::vector<float> got_floats(kCount), want(kCount);
    for (int i = 0; i < kCount; ++i) {
      int low = i & ~1, high = i | 1;
      bool is_low = i == low;
      double value = 0.0;
      switch (operation) {
        case 0:
          value = a[i] + b[i];
          break;
        case 1:
          value = a[i] - b[i];
          break;
        case 2:
          value = a[i] * b[i];
          break;
        case 3:
          value = a[i] * b[i] + c[i];
          break;
        case 4:
          value = -a[i];
          break;
        case 5:
          value = std::fabs(a[i]);
          break;
        case 6:
          value = a[i] < b[i];
          break;
        case 7:
          value = a[i] >= c[i];
          break;
        case 8:
          value = is_low ? a[low] + b[high] : a[high] * b[low] + c[low];
          break;
        default:
          value = is_low ? std::fmax(a[i], b[i]) : std::fmin(a[i], b[i]);
      }
      want[i] = static_cast<float>(Rounded(value));
      got_floats[i] = __half2float(got[operation * kCount + i]);
    }
    check::Compare(names[operation], got_floats, want);
  }
  for (__half2* memory : {device_a, device_b, device_c, out}) CHECK(cudaFree(memory));
  return check::Ok();
}
