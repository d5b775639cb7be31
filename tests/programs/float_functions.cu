// Floating-point functions with exact results: rounding to whole numbers, remainders, minimum and
// maximum, scaling, decomposition, comparisons and classification.
#include <cmath>
#include <limits>
#include <string>

#include "check.h"

constexpr int kCount = 2048;
constexpr int kOperations = 19;

template <typename T>
struct Sink {
  T* next;
  int taken;
  __host__ __device__ void operator()(T value) {
    *next = value;
    next += kCount;
    ++taken;
  }
};

template <typename T>
__host__ __device__ int Evaluate(T a, T b, T c, T* results) {
  static_assert(std::is_same<decltype(fma(a, b, c)), T>::value, "in the type's own precision");
  Sink<T> put{results, 0};
  put(floor(a));
  put(ceil(a));
  put(trunc(a));
  put(rint(a));
  put(round(a));
  put(fabs(a));
  put(fmin(a, b));
  put(fmax(a, b));
  put(copysign(a, b));
  put(fmod(a, b));
  put(fdim(floor(a), floor(b)));
  int exponent = 0;
  put(frexp(a, &exponent));
  put(static_cast<T>(exponent));
  put(ldexp(a, static_cast<int>(c)));
  put(fma(a, b, c));
  put(static_cast<T>((a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a > b) + 16 * (a >= b) +
                     32 * (a != b)));
  put(static_cast<T>((isnan(a) ? 1 : 0) + (isinf(b) ? 2 : 0) + (signbit(c) ? 4 : 0)));
  put(static_cast<T>(!(a < b) ? 1 : 0));
  T whole = 0;
  const T fraction = modf(c, &whole);
  put(fraction * 4 + whole);
  return put.taken;
}

template <typename T>
__global__ void Run(const T* a, const T* b, const T* c, T* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) Evaluate(a[i], b[i], c[i], out + i);
}

template <typename T>
T Canonical(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

template <typename T>
void Test(const char* type) {
  check::Random random(100 + sizeof(T));
  std::vector<T> a(kCount), b(kCount), c(kCount);
  const T special[] = {T(0.5),
                       T(-0.5),
                       T(1.5),
                       T(2.5),
                       T(-2.5),
                       T(0.49999997),
                       T(8388607.5),
                       T(4503599627370495.5),
                       T(1) / 3,
                       std::numeric_limits<T>::infinity(),
                       std::numeric_limits<T>::quiet_NaN(),
                       T(1e30)};
  for (int i = 0; i < kCount; ++i) {
    a[i] = i % 9 == 0 ? special[random.Next32() % 12]
                      : static_cast<T>(random.NextFloat()) * (1 << i % 24);
    b[i] = i % 31 == 0 ? special[random.Next32() % 9]
                       : static_cast<T>(random.NextFloat()) * (1 << i % 11) + T(0.25);
    c[i] = static_cast<T>(random.NextFloat()) * 100;
    if (i % 13 == 0) b[i] = a[i];
  }
  T* device_a = check::Upload(a);
  T* device_b = check::Upload(b);
  T* device_c = check::Upload(c);
  T* out = check::Zeroed<T>(kOperations * kCount);
  Run<<<kCount / 64, 64>>>(device_a, device_b, device_c, out);
  CHECK(cudaGetLastError());
  std::vector<T> got = check::Download(out, kOperations * kCount), want(kOperations * kCount);
  for (int i = 0; i < kCount; ++i) {
    REQUIRE(Evaluate(a[i], b[i], c[i], &want[i]) == kOperations);
    // The exponent of a value that is not finite is unspecified.
    if (!std::isfinite(a[i])) got[12 * kCount + i] = want[12 * kCount + i] = 0;
  }
  for (T& value : got) value = Canonical(value);
  for (T& value : want) value = Canonical(value);
  for (int operation = 0; operation < kOperations; ++operation) {
    std::string what = std::string(type) + " operation " + std::to_string(operation);
    check::Compare(what.c_str(), &got[operation * kCount], &want[operation * kCount], kCount);
  }
  for (T* memory : {device_a, device_b, device_c, out}) CHECK(cudaFree(memory));
}

int main() {
  Test<float>("float");
  Test<double>("double");
  return check::Ok();
}
