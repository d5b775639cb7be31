// A kernel for each kind of memory that code uses. A macro KIND_... chooses the kernel.
#include <cassert>
#include <cstdio>

// Nothing but its parameters.
#if KIND_plain
extern "C" __global__ void Use(int* to, int n) {
  __shared__ int shared[32];
  shared[threadIdx.x % 32] = n;
  __syncthreads();
  to[threadIdx.x] = shared[(threadIdx.x + 1) % 32] / n;
}
#endif

// A variable that the kernel writes.
#if KIND_written
__device__ int counter = 3;
extern "C" __global__ void Use(int* to) { *to = atomicAdd(&counter, 1); }
#endif

// A variable without an initial value, in a function.
#if KIND_static
extern "C" __global__ void Use(int* to) {
  static int calls[4];
  *to = ++calls[threadIdx.x % 4];
}
#endif

// A variable that another function uses.
#if KIND_called
__device__ int counter;
__device__ __noinline__ int Next(int by) { return counter += by; }
extern "C" __global__ void Use(int* to, int n) { *to = Next(n) + Next(2 * n); }
#endif

// A table that no code writes. The host may.
#if KIND_table
__device__ const int table[64] = {3, 1, 4, 1, 5, 9, 2, 6};
extern "C" __global__ void Use(int* to) { *to = table[threadIdx.x % 64]; }
#endif

#if KIND_constant
__constant__ int scale[16] = {1, 2, 3};
extern "C" __global__ void Use(int* to) { *to *= scale[threadIdx.x % 16]; }
#endif

// A variable whose address is in constant memory.
#if KIND_pointer
__device__ int target;
__constant__ int* where = &target;
extern "C" __global__ void Use(int n) { *where = n; }
#endif

#if KIND_printf
extern "C" __global__ void Use(int n) { printf("%d of %s\n", n, __func__); }
#endif

#if KIND_malloc
extern "C" __global__ void Use(void** to) { *to = malloc(64); }
#endif

#if KIND_free
extern "C" __global__ void Use(void* it) { free(it); }
#endif

#if KIND_new
extern "C" __global__ void Use(int** to) { *to = new int[threadIdx.x]; }
#endif

#if KIND_virtual
struct Shape {
  __device__ virtual int Area() const = 0;
};
struct Square : Shape {
  int side;
  __device__ explicit Square(int side) : side(side) {}
  __device__ int Area() const override { return side * side; }
};
struct Line : Shape {
  __device__ int Area() const override { return 0; }
};
__device__ __noinline__ int AreaOf(const Shape& shape) { return shape.Area(); }
extern "C" __global__ void Use(int* to, int n) {
  Square square(n);
  Line line;
  *to = AreaOf(n % 2 == 0 ? static_cast<const Shape&>(square) : line);
}
#endif

#if KIND_assert
extern "C" __global__ void Use(int n) { assert(n > 0); }
#endif
