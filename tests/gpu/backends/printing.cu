// Kernels that print and kernels that do not, for printing_kernels_test.
#include <cassert>
#include <cstdio>

using Function = int (*)(int);

__device__ __noinline__ int Deep(int i) {
  printf("deep %d\n", i);
  return i;
}
__device__ __noinline__ int Deeper(int i) {
  return i > 3 ? Deeper(i - 1) + Deep(i) : Deep(i + 1) * 2;
}
__device__ Function table[2] = {Deep, Deeper};

extern "C" {
__global__ void prints(int i) { printf("value %d\n", i); }
__global__ void calls(int* i) { *i = Deeper(*i); }
__global__ void points(int* i) { *i = table[*i & 1](*i); }
__global__ void quiet(int* p) { *p = 1; }
__global__ void asserts(int* p) {
  assert(*p == 1);
  *p = 3;
}
}
