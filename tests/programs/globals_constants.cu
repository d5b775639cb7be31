// __device__ and __constant__ variables: initial values, pointers to other variables, copies to and
// from symbols with offsets, addresses and sizes, and values that last from launch to launch.
#include <string>

#include "check.h"

struct Settings {
  char kind;
  double scale;
  short offsets[3];
  const int* table;
};

__device__ int table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
__device__ int zeros[100];
__device__ int* into_table = &table[4];
__device__ const char text[] = "constants and globals";
__device__ unsigned long long launches = 40;
__device__ float ones[4] = {1.0f, -1.0f, 0.5f, 1e30f};
__constant__ int factors[64] = {7, 11, 13};
__constant__ Settings settings = {'k', 2.5, {-1, 2, -3}, table};

__global__ void ReadAll(long long* out) {
  int n = 0;
  for (int i = 0; i < 8; ++i) out[n++] = table[i];
  for (int i = 0; i < 100; i += 9) out[n++] = zeros[i];
  out[n++] = *into_table;
  out[n++] = into_table - table;
  for (int i = 0; i < static_cast<int>(sizeof text); ++i) out[n++] = text[i];
  for (int i = 0; i < 4; ++i) out[n++] = __float_as_int(ones[i]);
  for (int i = 0; i < 64; ++i) out[n++] = factors[i];
  out[n++] = settings.kind;
  out[n++] = __double_as_longlong(settings.scale);
  for (int i = 0; i < 3; ++i) out[n++] = settings.offsets[i];
  out[n++] = settings.table == nullptr ? -1 : settings.table[5];
  out[n++] = static_cast<long long>(++launches);
}

__global__ void Write() {
  table[threadIdx.x] *= 10;
  zeros[threadIdx.x * 9] = static_cast<int>(threadIdx.x);
  if (threadIdx.x == 0) into_table = &zeros[27];
}

struct Host {
  int table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
  int zeros[100] = {};
  const int* into_table = &table[4];
  long long into_offset = 4;
  float ones[4] = {1.0f, -1.0f, 0.5f, 1e30f};
  int factors[64] = {7, 11, 13};
  Settings settings = {'k', 2.5, {-1, 2, -3}, table};
  long long launches = 40;

  std::vector<long long> Read() {
    std::vector<long long> out;
    for (int value : table) out.push_back(value);
    for (int i = 0; i < 100; i += 9) out.push_back(zeros[i]);
    out.push_back(*into_table);
    out.push_back(into_offset);
    for (char c : std::string("constants and globals")) out.push_back(c);
    out.push_back(0);
    for (float value : ones) {
      std::int32_t bits;
      std::memcpy(&bits, &value, 4);
      out.push_back(bits);
    }
    for (int value : factors) out.push_back(value);
    out.push_back(settings.kind);
    long long scale;
    std::memcpy(&scale, &settings.scale, 8);
    out.push_back(scale);
    for (short value : settings.offsets) out.push_back(value);
    out.push_back(settings.table == nullptr ? -1 : settings.table[5]);
    out.push_back(++launches);
    return out;
  }
};

int main() {
  Host host;
  std::vector<long long> want = host.Read();
  long long* out = check::Zeroed<long long>(want.size());
  ReadAll<<<1, 1>>>(out);
  CHECK(cudaGetLastError());
  check::Compare("initial", check::Download(out, want.size()), want);

  Write<<<1, 8>>>();
  for (int i = 0; i < 8; ++i) {
    host.table[i] *= 10;
    host.zeros[i * 9] = i;
  }
  int* device_table = nullptr;
  int* device_zeros = nullptr;
  CHECK(cudaGetSymbolAddress(reinterpret_cast<void**>(&device_table), table));
  CHECK(cudaGetSymbolAddress(reinterpret_cast<void**>(&device_zeros), zeros));
  host.into_table = &host.zeros[27];
  host.into_offset = device_zeros + 27 - device_table;

  // Changes by the host: a part of an array, a whole struct, and a pointer to device memory in
  // constant memory.
  const int new_factors[3] = {101, 102, 103};
  CHECK(cudaMemcpyToSymbol(factors, new_factors, sizeof new_factors, 5 * sizeof(int)));
  std::memcpy(host.factors + 5, new_factors, sizeof new_factors);
  Settings changed = {'z', -0.125, {300, -301, 302}, device_table};
  CHECK(cudaMemcpyToSymbol(settings, &changed, sizeof changed));
  host.settings = changed;
  host.settings.table = host.table;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  const float minus = -2.75f;
  CHECK(cudaMemcpyToSymbolAsync(ones, &minus, sizeof minus, 2 * sizeof(float),
                                cudaMemcpyHostToDevice, stream));
  host.ones[2] = minus;
  CHECK(cudaStreamSynchronize(stream));
  want = host.Read();
  ReadAll<<<1, 1>>>(out);
  std::vector<long long> got = check::Download(out, want.size());
  // The loader chooses the distance of two variables, so it is compared and not printed.
  const std::size_t distance = 8 + 12 + 1;
  REQUIRE(got[distance] == want[distance]);
  got[distance] = want[distance] = 0;
  check::Compare("changed", got, want);

  int table_back[8] = {};
  CHECK(cudaMemcpyFromSymbol(table_back, table, 5 * sizeof(int), 3 * sizeof(int)));
  check::Compare("from symbol", table_back, host.table + 3, 5);
  int through_address[8] = {};
  CHECK(cudaMemcpy(through_address, device_table, sizeof through_address, cudaMemcpyDeviceToHost));
  check::Compare("from address", through_address, host.table, 8);
  float back[4] = {};
  CHECK(cudaMemcpyFromSymbolAsync(back, ones, sizeof back, 0, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  check::Compare("asynchronously", back, host.ones, 4);

  std::size_t size = 0;
  CHECK(cudaGetSymbolSize(&size, zeros));
  REQUIRE(size == sizeof host.zeros);
  CHECK(cudaGetSymbolSize(&size, settings));
  REQUIRE(size == sizeof(Settings));
  EXPECT(cudaMemcpyToSymbol(table, table_back, sizeof table_back, 4), cudaErrorInvalidValue);

  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(out));
  return check::Ok();
}
