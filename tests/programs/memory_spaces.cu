// Loads and stores of every width in every memory space: vectors, bytes and halfwords, generic
// pointers to global, shared and local memory, local arrays with dynamic indices, read-only and
// volatile accesses.
#include "check.h"

constexpr int kThreads = 128;

struct alignas(16) Record {
  double d;
  float f;
  short s;
  signed char c;
  unsigned char u;
};

// The space that `where` points into is known only when the kernel runs.
__device__ __noinline__ int Use(int* where, int add) {
  *where += add;
  return *where * 2;
}

__global__ void Spaces(const int* in, int* out) {
  __shared__ int shared[kThreads];
  int local[4] = {1, 2, 3, 4};
  int t = threadIdx.x;
  shared[t] = in[t];
  out[t] = in[t] + 1;
  int* where = t % 3 == 0 ? &shared[t] : t % 3 == 1 ? &out[t] : &local[t % 4];
  int result = Use(where, t);
  __syncthreads();
  unsigned kinds =
      (__isGlobal(where) ? 1 : 0) + (__isShared(where) ? 2 : 0) + (__isLocal(where) ? 4 : 0);
  out[t] = result + shared[t] * 1000 + local[t % 4] * 1000000 + static_cast<int>(kinds) * 7;
}

__global__ void Vectors(const float4* in4, const int2* in2, const uchar4* bytes,
                        const short* shorts, const double2* doubles, float4* out4, int2* out2,
                        uchar4* out_bytes, short* out_shorts, double2* out_doubles) {
  int t = threadIdx.x;
  float4 f = in4[t];
  out4[kThreads - 1 - t] = make_float4(f.w, f.z, f.y, f.x);
  int2 i = __ldg(&in2[t]);
  out2[t] = make_int2(i.y, -i.x);
  uchar4 b = bytes[t];
  out_bytes[t] = make_uchar4(b.y, b.x, b.w, b.z + 1);
  volatile const short* v = shorts;
  out_shorts[t] = static_cast<short>(v[t] + v[kThreads - 1 - t]);
  double2 d = __ldcs(&doubles[t]);
  __stcg(&out_doubles[t], make_double2(d.y, d.x * 2));
}

__global__ void Records(const Record* in, Record* out) {
  __shared__ Record staged[kThreads];
  int t = threadIdx.x;
  staged[t] = in[t];
  __syncthreads();
  Record r = staged[(t + 5) % kThreads];
  Record copies[3];
  for (int k = 0; k < 3; ++k) {
    copies[(t + k) % 3] = r;
    copies[(t + k) % 3].s = static_cast<short>(copies[(t + k) % 3].s + k);
    copies[(t + k) % 3].c = static_cast<signed char>(-r.c);
    copies[(t + k) % 3].u = static_cast<unsigned char>(r.u + k);
  }
  out[t] = copies[r.u % 3];
}

int main() {
  check::Random random(64);
  std::vector<int> in(kThreads), want(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    in[t] = static_cast<int>(random.Next32() % 50);
    int local[4] = {1, 2, 3, 4}, shared = in[t], global = in[t] + 1;
    int* where = t % 3 == 0 ? &shared : t % 3 == 1 ? &global : &local[t % 4];
    *where += t;
    int kinds = t % 3 == 0 ? 2 : t % 3 == 1 ? 1 : 4;
    want[t] = *where * 2 + shared * 1000 + local[t % 4] * 1000000 + kinds * 7;
  }
  int* device_in = check::Upload(in);
  int* out = check::Zeroed<int>(kThreads);
  Spaces<<<1, kThreads>>>(device_in, out);
  CHECK(cudaGetLastError());
  check::Compare("spaces", check::Download(out, kThreads), want);

  std::vector<float4> f(kThreads), want_f(kThreads);
  std::vector<int2> i(kThreads), want_i(kThreads);
  std::vector<uchar4> b(kThreads), want_b(kThreads);
  std::vector<short> s(kThreads), want_s(kThreads);
  std::vector<double2> d(kThreads), want_d(kThreads);
  std::vector<Record> r(kThreads), want_r(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    auto byte = [&] { return static_cast<unsigned char>(random.Next32()); };
    f[t] =
        make_float4(random.NextFloat(), random.NextFloat(), random.NextFloat(), random.NextFloat());
    i[t] = make_int2(static_cast<int>(random.Next32() >> 1), static_cast<int>(random.Next32()));
    b[t] = make_uchar4(byte(), byte(), byte(), byte());
    s[t] = static_cast<short>(random.Next32());
    d[t] = make_double2(random.NextFloat(), random.NextFloat());
    r[t] = {random.NextFloat() * 3.0, random.NextFloat(), static_cast<short>(random.Next32()),
            static_cast<signed char>(random.Next32()), byte()};
  }
  for (int t = 0; t < kThreads; ++t) {
    want_f[kThreads - 1 - t] = make_float4(f[t].w, f[t].z, f[t].y, f[t].x);
    want_i[t] = make_int2(i[t].y, -i[t].x);
    want_b[t] = make_uchar4(b[t].y, b[t].x, b[t].w, static_cast<unsigned char>(b[t].z + 1));
    want_s[t] = static_cast<short>(s[t] + s[kThreads - 1 - t]);
    want_d[t] = make_double2(d[t].y, d[t].x * 2);
    const Record& from = r[(t + 5) % kThreads];
    int k = ((from.u - t) % 3 + 3) % 3;  // the copy whose place is chosen
    want_r[t] = {from.d, from.f, static_cast<short>(from.s + k), static_cast<signed char>(-from.c),
                 static_cast<unsigned char>(from.u + k)};
  }
  float4* out_f = check::Zeroed<float4>(kThreads);
  int2* out_i = check::Zeroed<int2>(kThreads);
  uchar4* out_b = check::Zeroed<uchar4>(kThreads);
  short* out_s = check::Zeroed<short>(kThreads);
  double2* out_d = check::Zeroed<double2>(kThreads);
  Record* out_r = check::Zeroed<Record>(kThreads);
  Vectors<<<1, kThreads>>>(check::Upload(f), check::Upload(i), check::Upload(b), check::Upload(s),
                           check::Upload(d), out_f, out_i, out_b, out_s, out_d);
  CHECK(cudaGetLastError());
  check::Compare("float4", check::Download(out_f, kThreads), want_f);
  check::Compare("int2", check::Download(out_i, kThreads), want_i);
  check::Compare("uchar4", check::Download(out_b, kThreads), want_b);
  check::Compare("short", check::Download(out_s, kThreads), want_s);
  check::Compare("double2", check::Download(out_d, kThreads), want_d);
  Records<<<1, kThreads>>>(check::Upload(r), out_r);
  CHECK(cudaGetLastError());
  check::Compare("records", check::Download(out_r, kThreads), want_r);
  // The remaining memory is freed with the context.
  CHECK(cudaDeviceReset());
  return check::Ok();
}
