// Correctly rounded floating-point arithmetic in all four rounding modes, in single and double
// precision: add, multiply, divide, fused multiply-add, reciprocal, square root. With zeros,
// subnormal numbers, infinities and NaNs.
#include <cfenv>
#include <cmath>
#include <limits>
#include <string>

#include "check.h"

constexpr int kCount = 4096;
constexpr int kPerMode = 7;
constexpr int kModes = 4;
constexpr int kPlain = 6;
constexpr int kOperations = kPerMode * kModes + kPlain;

// The four suffixes of the intrinsics in the order of kRoundings.
#define ALL_MODES(put, kind)                                                                    \
  put(__##kind##add_rn(a, b), __##kind##mul_rn(a, b), __##kind##div_rn(a, b), FMA(rn), RCP(rn), \
      SQRT(rn), __##kind##sub_rn(a, b));                                                        \
  put(__##kind##add_rz(a, b), __##kind##mul_rz(a, b), __##kind##div_rz(a, b), FMA(rz), RCP(rz), \
      SQRT(rz), __##kind##sub_rz(a, b));                                                        \
  put(__##kind##add_ru(a, b), __##kind##mul_ru(a, b), __##kind##div_ru(a, b), FMA(ru), RCP(ru), \
      SQRT(ru), __##kind##sub_ru(a, b));                                                        \
  put(__##kind##add_rd(a, b), __##kind##mul_rd(a, b), __##kind##div_rd(a, b), FMA(rd), RCP(rd), \
      SQRT(rd), __##kind##sub_rd(a, b))

template <typename T>
struct Sink {
  T* next;
  __device__ void Put(T value) {
    *next = value;
    next += kCount;
  }
  __device__ void operator()(T add, T multiply, T divide, T fused, T reciprocal, T root,
                             T subtract) {
    for (T value : {add, multiply, divide, fused, reciprocal, root, subtract}) Put(value);
  }
};

template <typename T>
__device__ void Plain(Sink<T>& sink, T a, T b) {
  sink.Put(a + b);
  sink.Put(a - b);
  sink.Put(a * b);
  sink.Put(a / b);
  sink.Put(sqrt(a));
  sink.Put(-a);
}

__global__ void Evaluate(const float* in_a, const float* in_b, const float* in_c, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= kCount) return;
  float a = in_a[i], b = in_b[i], c = in_c[i];
  Sink<float> sink{out + i};
#define FMA(mode) __fmaf_##mode(a, b, c)
#define RCP(mode) __frcp_##mode(b)
#define SQRT(mode) __fsqrt_##mode(a)
  ALL_MODES(sink, f);
#undef FMA
#undef RCP
#undef SQRT
  Plain(sink, a, b);
}

__global__ void Evaluate(const double* in_a, const double* in_b, const double* in_c, double* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= kCount) return;
  double a = in_a[i], b = in_b[i], c = in_c[i];
  Sink<double> sink{out + i};
#define FMA(mode) __fma_##mode(a, b, c)
#define RCP(mode) __drcp_##mode(b)
#define SQRT(mode) __dsqrt_##mode(a)
  ALL_MODES(sink, d);
#undef FMA
#undef RCP
#undef SQRT
  Plain(sink, a, b);
}

// One operation on the host in the current rounding mode. Volatile prevents the compiler from
// moving or folding it.
template <typename T>
__attribute__((noinline)) T Reference(int operation, T x, T y, T z) {
  volatile T a = x, b = y, c = z, result = 0;
  switch (operation) {
    case 0:
      result = a + b;
      break;
    case 1:
      result = a * b;
      break;
    case 2:
      result = a / b;
      break;
    case 3:
      result = std::fma(static_cast<T>(a), static_cast<T>(b), static_cast<T>(c));
      break;
    case 4:
      result = static_cast<T>(1) / b;
      break;
    case 5:
      result = std::sqrt(static_cast<T>(a));
      break;
    case 6:
      result = a - b;
      break;
  }
  return result;
}

// All NaNs count as equal, because the machine chooses the bits of a NaN.
template <typename T>
T Canonical(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

template <typename T, typename Bits>
T Make(check::Random& random, int index) {
  const T extremes[] = {T(0),
                        -T(0),
                        T(1),
                        -T(1),
                        std::numeric_limits<T>::infinity(),
                        -std::numeric_limits<T>::infinity(),
                        std::numeric_limits<T>::quiet_NaN(),
                        std::numeric_limits<T>::max(),
                        std::numeric_limits<T>::lowest(),
                        std::numeric_limits<T>::min(),
                        std::numeric_limits<T>::denorm_min(),
                        -std::numeric_limits<T>::denorm_min(),
                        std::numeric_limits<T>::epsilon(),
                        T(1) + std::numeric_limits<T>::epsilon(),
                        T(3),
                        T(0.1)};
  Bits bits = static_cast<Bits>(random.Next64());
  switch (index % 4) {
    case 0: {  // any bits
      T value;
      std::memcpy(&value, &bits, sizeof value);
      return Canonical(value);
    }
    case 1:
      return extremes[bits % 16];
    case 2: {  // subnormal, and just above
      Bits small = bits >> (std::is_same<T, float>::value ? 8 : 11);
      T value;
      std::memcpy(&value, &small, sizeof value);
      return random.Next32() % 2 == 0 ? value : -value;
    }
    default:
      return static_cast<T>(random.NextFloat()) * (1 + random.Next32() % 1000);
  }
}

template <typename T, typename Bits>
void Test(const char* type) {
  check::Random random(sizeof(T));
  std::vector<T> a(kCount), b(kCount), c(kCount);
  for (int i = 0; i < kCount; ++i) {
    a[i] = Make<T, Bits>(random, i);
    b[i] = Make<T, Bits>(random, i / 4);
    c[i] = Make<T, Bits>(random, i / 16);
    // Values near exact results, where rounding matters most.
    if (i % 5 == 0) c[i] = -a[i] * b[i];
    if (i % 7 == 0) a[i] = b[i] * b[i];
  }
  T* device_a = check::Upload(a);
  T* device_b = check::Upload(b);
  T* device_c = check::Upload(c);
  T* out = check::Zeroed<T>(kOperations * kCount);
  Evaluate<<<kCount / 128, 128>>>(device_a, device_b, device_c, out);
  CHECK(cudaGetLastError());
  std::vector<T> got = check::Download(out, kOperations * kCount);
  for (T& value : got) value = Canonical(value);

  const int kRoundings[kModes] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};
  const char* kModeNames[kModes] = {"rn", "rz", "ru", "rd"};
  const char* kNames[kPerMode] = {"add", "mul", "div", "fma", "rcp", "sqrt", "sub"};
  std::vector<T> want(kCount);
  for (int mode = 0; mode < kModes; ++mode) {
    for (int operation = 0; operation < kPerMode; ++operation) {
      std::fesetround(kRoundings[mode]);
      for (int i = 0; i < kCount; ++i) want[i] = Reference<T>(operation, a[i], b[i], c[i]);
      std::fesetround(FE_TONEAREST);
      for (T& value : want) value = Canonical(value);
      std::string what = std::string(type) + " " + kNames[operation] + "_" + kModeNames[mode];
      check::Compare(what.c_str(), &got[(mode * kPerMode + operation) * kCount], want.data(),
                     kCount);
    }
  }
  const int kPlainOperations[kPlain] = {0, 6, 1, 2, 5, -1};
  const char* kPlainNames[kPlain] = {"+", "-", "*", "/", "sqrt", "negative"};
  for (int n = 0; n < kPlain; ++n) {
    for (int i = 0; i < kCount; ++i) {
      want[i] = Canonical(n == 5 ? -a[i] : Reference<T>(kPlainOperations[n], a[i], b[i], c[i]));
    }
    std::string what = std::string(type) + " " + kPlainNames[n];
    check::Compare(what.c_str(), &got[(kModes * kPerMode + n) * kCount], want.data(), kCount);
  }
  for (T* memory : {device_a, device_b, device_c, out}) CHECK(cudaFree(memory));
}

int main() {
  Test<float, std::uint32_t>("float");
  Test<double, std::uint64_t>("double");
  return check::Ok();
}
