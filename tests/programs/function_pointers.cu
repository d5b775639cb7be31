// Device function pointers: tables that the loader fills in, a pointer that the host reads and
// passes back as an argument, and indirect calls that differ within a warp.
#include "check.h"

using Operation = int (*)(int, int);

__device__ int Add(int a, int b) { return a + b; }
__device__ int Subtract(int a, int b) { return a - b; }
__device__ int Multiply(int a, int b) { return a * b; }
__device__ int Larger(int a, int b) { return a > b ? a : b; }

__device__ Operation operations[4] = {Add, Subtract, Multiply, Larger};
__constant__ Operation constant_operations[2] = {Larger, Multiply};
__device__ Operation chosen = Subtract;

template <typename T>
__device__ T Square(T x) {
  return x * x;
}
using Unary = double (*)(double);
__device__ Unary square = Square<double>;

__global__ void FromTable(const int* a, const int* b, int* out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  out[i] = operations[i % 4](a[i], b[i]);
  out[count + i] = constant_operations[i / 32 % 2](a[i], b[i]);
}

__global__ void FromArgument(Operation operation, Unary unary, const int* a, const int* b, int* out,
                             int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = operation(a[i], b[i]) + static_cast<int>(unary(i * 0.5));
}

int main() {
  constexpr int kCount = 1024;
  check::Random random(4);
  std::vector<int> a(kCount), b(kCount), want(2 * kCount);
  for (int i = 0; i < kCount; ++i) {
    a[i] = static_cast<int>(random.Next32() % 20001) - 10000;
    b[i] = static_cast<int>(random.Next32() % 20001) - 10000;
    int results[4] = {a[i] + b[i], a[i] - b[i], a[i] * b[i], a[i] > b[i] ? a[i] : b[i]};
    want[i] = results[i % 4];
    want[kCount + i] = i / 32 % 2 == 0 ? results[3] : results[2];
  }
  int* device_a = check::Upload(a);
  int* device_b = check::Upload(b);
  int* out = check::Zeroed<int>(2 * kCount);
  FromTable<<<kCount / 64, 64>>>(device_a, device_b, out, kCount);
  CHECK(cudaGetLastError());
  check::Compare("tables", check::Download(out, 2 * kCount), want);

  Operation operation = nullptr;
  Unary unary = nullptr;
  CHECK(cudaMemcpyFromSymbol(&operation, chosen, sizeof operation));
  CHECK(cudaMemcpyFromSymbol(&unary, square, sizeof unary));
  REQUIRE(operation != nullptr && unary != nullptr);
  FromArgument<<<kCount / 64, 64>>>(operation, unary, device_a, device_b, out, kCount);
  CHECK(cudaGetLastError());
  want.resize(kCount);
  for (int i = 0; i < kCount; ++i) want[i] = a[i] - b[i] + static_cast<int>(i * 0.5 * i * 0.5);
  check::Compare("argument", check::Download(out, kCount), want);

  // The host writes another function into a table.
  CHECK(cudaMemcpyToSymbol(operations, &operation, sizeof operation, 2 * sizeof operation));
  FromTable<<<kCount / 64, 64>>>(device_a, device_b, out, kCount);
  for (int i = 0; i < kCount; ++i) {
    int results[4] = {a[i] + b[i], a[i] - b[i], a[i] - b[i], a[i] > b[i] ? a[i] : b[i]};
    want[i] = results[i % 4];
  }
  check::Compare("changed table", check::Download(out, kCount), want);
  CHECK(cudaFree(device_a));
  CHECK(cudaFree(device_b));
  CHECK(cudaFree(out));
  return check::Ok();
}
