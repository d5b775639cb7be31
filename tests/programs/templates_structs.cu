// Kernels that take their arguments by value: structs of mixed alignment, a large struct, many
// parameters, function objects, and template instances that differ only in types or numbers.
#include "check.h"

struct Mixed {
  char c;
  double d;
  short s;
  float4 f;  // 16-byte alignment
  unsigned char tail[3];
};

struct Nested {
  char first;
  struct {
    short a;
    long long b;
  } inner[3];
  bool flag;
};

struct Big {
  int values[700];
  double last;
};

struct Empty {};

__global__ void Unpack(char a, Mixed m, short b, Nested n, double c, Empty, unsigned char d,
                       long long* out) {
  int i = 0;
  out[i++] = a;
  out[i++] = m.c;
  out[i++] = __double_as_longlong(m.d);
  out[i++] = m.s;
  out[i++] = __float_as_int(m.f.x);
  out[i++] = __float_as_int(m.f.y);
  out[i++] = __float_as_int(m.f.z);
  out[i++] = __float_as_int(m.f.w);
  for (unsigned char t : m.tail) out[i++] = t;
  out[i++] = b;
  out[i++] = n.first;
  for (const auto& inner : n.inner) {
    out[i++] = inner.a;
    out[i++] = inner.b;
  }
  out[i++] = n.flag;
  out[i++] = __double_as_longlong(c);
  out[i++] = d;
  out[i++] = sizeof(Mixed) * 1000 + alignof(Mixed);
}

__global__ void SumBig(Big big, int start, long long* out) {
  // A dynamic index into a parameter.
  long long sum = 0;
  for (int i = start + threadIdx.x; i < 700; i += blockDim.x) sum += big.values[i] * (i + 1LL);
  out[threadIdx.x] = sum + static_cast<long long>(big.last);
}

template <typename T>
struct Affine {
  T factor, offset;
  __host__ __device__ T operator()(T x) const { return factor * x + offset; }
};

struct Shift {
  int by;
  __host__ __device__ unsigned operator()(unsigned x) const { return (x << by) ^ (x >> (32 - by)); }
};

template <int kTimes, typename T, typename Function>
__global__ void Apply(Function function, const T* in, T* out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  T value = in[i];
#pragma unroll
  for (int k = 0; k < kTimes; ++k) value = function(value);
  out[i] = value;
}

template <int kTimes, typename T, typename Function>
void TestApply(const char* what, Function function) {
  constexpr int kCount = 1000;
  check::Random random(kTimes);
  std::vector<T> in(kCount), want(kCount);
  for (int i = 0; i < kCount; ++i) {
    in[i] = static_cast<T>(random.Next32() % 1000);
    want[i] = in[i];
    for (int k = 0; k < kTimes; ++k) want[i] = function(want[i]);
  }
  T* device_in = check::Upload(in);
  T* device_out = check::Zeroed<T>(kCount);
  Apply<kTimes, T><<<(kCount + 63) / 64, 64>>>(function, device_in, device_out, kCount);
  CHECK(cudaGetLastError());
  check::Compare(what, check::Download(device_out, kCount), want);
  CHECK(cudaFree(device_in));
  CHECK(cudaFree(device_out));
}

template <typename T>
long long BitsOf(T value) {
  std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t> bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

int main() {
  long long* out = check::Zeroed<long long>(64);
  Mixed mixed = {'m', 3.141592653589793, -1234, make_float4(1.5f, -2.5f, 3.25f, 1e-30f), {9, 8, 7}};
  Nested nested = {'n', {{-1, 1LL << 40}, {-2, -5}, {-3, 77}}, true};
  Unpack<<<1, 1>>>(-5, mixed, 31000, nested, -0.5, Empty{}, 250, out);
  CHECK(cudaGetLastError());
  std::vector<long long> want = {-5, 'm', BitsOf(mixed.d), -1234};
  for (float f : {1.5f, -2.5f, 3.25f, 1e-30f}) want.push_back(BitsOf(f));
  want.insert(want.end(),
              {9, 8, 7, 31000, 'n', -1, 1LL << 40, -2, -5, -3, 77, 1, BitsOf(-0.5), 250});
  want.push_back(sizeof(Mixed) * 1000 + alignof(Mixed));
  check::Compare("unpacked", check::Download(out, want.size()), want);

  Big big;
  for (int i = 0; i < 700; ++i) big.values[i] = i * 1337 - 400000;
  big.last = 12345678.0;
  for (int start : {0, 13}) {
    SumBig<<<1, 32>>>(big, start, out);
    std::vector<long long> sums(32, 12345678);
    for (int i = start; i < 700; ++i) sums[(i - start) % 32] += big.values[i] * (i + 1LL);
    check::Compare("big struct", check::Download(out, 32), sums);
  }

  TestApply<1, int>("affine int", Affine<int>{3, -7});
  TestApply<5, int>("affine int, 5 times", Affine<int>{3, -7});
  TestApply<3, long long>("affine long long", Affine<long long>{-100003, 17});
  // Small whole numbers, which are exact with and without fused multiply-add.
  TestApply<2, float>("affine float", Affine<float>{4.0f, -3.0f});
  TestApply<4, double>("affine double", Affine<double>{-3.0, 0.5});
  TestApply<7, unsigned>("rotate", Shift{5});
  CHECK(cudaFree(out));
  return check::Ok();
}
