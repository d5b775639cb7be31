// The kernels of kernels_test.cc. The build of the tests compiles them to PTX.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <mma.h>

#include <cassert>
#include <cstdio>
#include <cuda/barrier>

namespace cg = cooperative_groups;

#define KERNEL extern "C" __global__ void

__constant__ int coefficients[4] = {3, 5, 7, 11};
__device__ int counter = 40;
__device__ int* counter_address = &counter;

KERNEL divergent_loops(int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int sum = 0;
  for (int k = 0; k < i % 37; ++k) {
    if (k % 3 == 0) {
      if (i % 2) {
        sum += k;
      } else {
        sum -= 2 * k;
        if (sum < -100) break;
      }
    } else if (k % 7 == 2) {
      continue;
    } else {
      sum += coefficients[k & 3];
    }
  }
  switch (i % 5) {
    case 0:
      sum *= 2;
      break;
    case 1:
      sum += 1000;
      break;
    case 2:
      sum ^= 0x55;
      break;
    case 3:
      sum = -sum;
      break;
  }
  out[i] = sum;
}

__device__ __noinline__ int Fibonacci(int n) {
  return n < 2 ? n : Fibonacci(n - 1) + Fibonacci(n - 2);
}
KERNEL recursion(int* out) { out[threadIdx.x] = Fibonacci(threadIdx.x % 12); }
__device__ __noinline__ int Endless(volatile int* p, int n) {
  return *p == 12345 ? n : Endless(p, n + 1) + *p;
}
KERNEL endless_recursion(int* out) { out[threadIdx.x] = Endless(out, 0); }

__device__ __noinline__ int Twice(int x) { return 2 * x; }
__device__ __noinline__ int Square(int x) { return x * x; }
__device__ __noinline__ int Minus(int x) { return -x; }
typedef int (*Function)(int);
__device__ Function functions[3] = {Twice, Square, Minus};
KERNEL function_pointers(int* out) { out[threadIdx.x] = functions[threadIdx.x % 3](threadIdx.x); }

struct Shape {
  __device__ virtual int area() const { return 1; }
  int w = 2;
};
struct Box : Shape {
  __device__ int area() const override { return w * h; }
  int h = 21;
};
KERNEL virtual_calls(int* out) {
  Shape shape;
  Box box;
  const Shape* s = threadIdx.x % 2 ? static_cast<const Shape*>(&box) : &shape;
  out[threadIdx.x] = s->area();
}

// All threads take the lock in turn, also threads of the same warp.
KERNEL spin_lock(int* lock, int* value) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  *(volatile int*)value = *(volatile int*)value + 1;
  __threadfence();
  atomicExch(lock, 0);
}

// Lane 0 waits for a write of lane 1 that follows the reconvergence point of the branch.
KERNEL lane_handoff(volatile int* flag, int* out) {
  if (threadIdx.x == 0) {
    while (*flag == 0) {
    }
    out[0] = 7;
  }
  if (threadIdx.x == 1) *flag = 1;
}

KERNEL block_flags(volatile int* flags, int* out) {
  // Block b waits for block b + 1; the last one starts the chain.
  if (threadIdx.x == 0) {
    if (blockIdx.x + 1 < gridDim.x) {
      while (flags[blockIdx.x + 1] == 0) {
      }
    }
    out[blockIdx.x] = blockIdx.x + 1 < gridDim.x ? out[blockIdx.x + 1] + 1 : 1;
    __threadfence();
    flags[blockIdx.x] = 1;
  }
}

KERNEL grid_sync(int* data, int rounds) {
  cg::grid_group grid = cg::this_grid();
  unsigned i = grid.thread_rank(), n = grid.size();
  for (int r = 0; r < rounds; ++r) {
    int next = data[(i + 1) % n] + 1;
    grid.sync();
    data[i] = next;
    grid.sync();
  }
}

KERNEL barriers(int* out, int* votes) {
  __shared__ int s[256];
  int t = threadIdx.x;
  s[t] = t * 3;
  __syncthreads();
  out[t] = s[blockDim.x - 1 - t];
  votes[3 * t] = __syncthreads_count(t % 3 == 0);
  votes[3 * t + 1] = __syncthreads_and(t < 1000);
  votes[3 * t + 2] = __syncthreads_or(t == 17);
}

KERNEL early_exit_barrier(int* out) {
  __shared__ int s;
  if (threadIdx.x >= 40) return;
  if (threadIdx.x == 0) s = 5;
  __syncthreads();
  out[threadIdx.x] = s;
}

KERNEL named_barriers(int* out) {
  __shared__ int s[128];
  int half = threadIdx.x / 64, t = threadIdx.x;
  s[t] = t;
  asm volatile("bar.sync %0, 64;" ::"r"(half + 1) : "memory");
  out[t] = s[half * 64 + 63 - t % 64];
}

KERNEL warp_operations(unsigned* out, unsigned* masks) {
  unsigned t = threadIdx.x, lane = t % 32;
  unsigned v = t * 7 + 1;
  unsigned r = __shfl_sync(~0u, v, (lane * 5) & 31);
  r = r * 31 + __shfl_up_sync(~0u, v, 3);
  r = r * 31 + __shfl_down_sync(~0u, v, 5, 16);
  r = r * 31 + __shfl_xor_sync(~0u, v, 9, 8);
  out[t] = r;
  masks[8 * t] = __ballot_sync(~0u, lane % 3 == 1);
  masks[8 * t + 1] = __match_any_sync(~0u, lane / 5);
  int same;
  masks[8 * t + 2] = __match_all_sync(~0u, 77, &same) + same;
  masks[8 * t + 3] = __reduce_add_sync(~0u, v);
  masks[8 * t + 4] = __reduce_min_sync(~0u, (int)v - 300);
  masks[8 * t + 5] = __any_sync(~0u, lane == 31) * 2 + __all_sync(~0u, lane < 31);
  if (lane < 11) {
    masks[8 * t + 6] = __activemask();
    masks[8 * t + 7] = __shfl_sync(0x7ff, v, 10);
  } else {
    masks[8 * t + 6] = __reduce_or_sync(0xfffff800u, 1u << lane);
    __syncwarp(0xfffff800u);
    masks[8 * t + 7] = 1;
  }
}

// Lanes that took different paths meet in one shuffle.
KERNEL diverged_shuffle(int* out) {
  int lane = threadIdx.x % 32, v;
  if (lane & 1) {
    v = lane * 10;
    for (int i = 0; i < lane; ++i) v += i & coefficients[1];
  } else {
    v = -lane;
  }
  out[threadIdx.x] = __shfl_xor_sync(~0u, v, 1);
}

__device__ __noinline__ int sum_of_warp(int v) { return __reduce_add_sync(~0u, v); }

// Groups of several warps keep their barriers and partial results in the reserved shared memory.
KERNEL tiles_of_warps(int* out) {
  __shared__ cg::block_tile_memory<256> memory;
  __shared__ int own[256];
  extern __shared__ int behind[];
  own[threadIdx.x] = threadIdx.x;
  behind[threadIdx.x] = threadIdx.x * 3;
  auto block = cg::this_thread_block(memory);
  auto tile = cg::tiled_partition<128>(block);
  int sum = 0;
  for (int i = 0; i < 5; ++i) {
    sum += cg::reduce(tile, (int)threadIdx.x + i, cg::plus<int>());
    tile.sync();
  }
  block.sync();
  out[threadIdx.x] = sum + tile.shfl(tile.thread_rank(), 5) * 1000000;
  out[256 + threadIdx.x] = own[255 - threadIdx.x] + behind[255 - threadIdx.x];
}

// Both branches of a warp name all lanes, at instructions of their own.
KERNEL shuffles_in_branches(int* out, int odd) {
  const int lane = threadIdx.x;
  int v = 0;
  if ((lane & 1) == odd) {
    v = __shfl_sync(~0u, lane * 10, (lane + 2) % 32) + 1;
    v = v * 1000 + __popc(__ballot_sync(~0u, lane < 7));
    if (__any_sync(~0u, lane == 31 - odd)) v += 500;
    out[lane] = v + sum_of_warp(lane) * 100000;
  } else {
    v = __shfl_sync(~0u, lane * 20, (lane + 3) % 32) + 2;
    v = v * 2000 + __popc(__ballot_sync(~0u, !(lane < 9)));
    if (__any_sync(~0u, lane == 99)) v += 700;
    out[lane] = -v - sum_of_warp(1) * 100000;
  }
}

KERNEL matches_in_branches(unsigned* out) {
  const int lane = threadIdx.x;
  int same = 0;
  if (lane < 11) {
    out[4 * lane] = __match_any_sync(~0u, lane / 4 * 0x100000001ull);
    out[4 * lane + 1] = __match_all_sync(~0u, 3, &same);
    out[4 * lane + 2] = same;
  } else {
    out[4 * lane + 3] = __match_any_sync(~0u, lane / 8 * 0x100000001ull) ^ 1;
    out[4 * lane] = __match_all_sync(~0u, lane == 40 ? 4 : 3, &same);
    out[4 * lane + 1] = same + 5;
  }
}

// Each thread gives its registers of a, b and the product: 16 by 8, from inputs of 8 and of 4 bits.
KERNEL mma_narrow(const unsigned* a, const unsigned* b, float* floats, int* integers) {
  const int lane = threadIdx.x, group = lane / 4, in_group = lane % 4;
  const unsigned* const row = a + group * 8 + in_group;
  const unsigned a0 = row[0], a1 = row[64], a2 = row[4], a3 = row[68];
  const unsigned b0 = b[group * 8 + in_group], b1 = b[group * 8 + in_group + 4];
  float d[4] = {0.5f, 0.5f, 0.5f, 0.5f};
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  int e[4] = {1, 1, 1, 1};
  asm("mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, "
      "{%0, %1, %2, %3};"
      : "+r"(e[0]), "+r"(e[1]), "+r"(e[2]), "+r"(e[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  for (int i = 0; i < 4; ++i) {
    const int place = (group + i / 2 * 8) * 8 + in_group * 2 + i % 2;
    floats[place] = d[i];
    integers[place] = e[i];
  }
}

KERNEL divisions_of_128_bits(const unsigned __int128* a, const unsigned __int128* b,
                             unsigned __int128* out, __int128* signed_out) {
  const int i = threadIdx.x;
  out[2 * i] = a[i] / b[i];
  out[2 * i + 1] = a[i] % b[i];
  signed_out[2 * i] = (__int128)a[i] / (__int128)b[i];
  signed_out[2 * i + 1] = (__int128)a[i] % (__int128)b[i];
}

KERNEL tiles(int* out) {
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  int sum = cg::reduce(tile, (int)threadIdx.x, cg::plus<int>());
  auto active = cg::coalesced_threads();
  if (threadIdx.x % 3 == 0) {
    auto some = cg::coalesced_threads();
    sum += 1000 * some.size() + some.thread_rank();
  }
  out[threadIdx.x] = sum + active.size() * 100000;
}

KERNEL atomics(int* a, unsigned long long* w, float* f, double* d) {
  __shared__ int s[8];
  int t = threadIdx.x;
  if (t < 8) s[t] = t;
  __syncthreads();
  atomicAdd(&s[t % 8], t);
  atomicMax(&s[(t + 1) % 8], t);
  __syncthreads();
  if (t < 8) atomicAdd(&a[t], s[t]);
  atomicMin(&a[8], t - 50);
  atomicInc((unsigned*)&a[9], 6);
  atomicDec((unsigned*)&a[10], 9);
  atomicOr(&a[11], 1 << (t % 20));
  atomicAnd(&a[12], ~(1 << (t % 20)));
  atomicXor(&a[13], 1 << (t % 5));
  atomicAdd(w, (unsigned long long)t << 30);
  atomicMax(w + 1, (unsigned long long)t << 33);
  atomicAdd(f, (float)(t % 16));
  atomicAdd(d, 0.5 * t);
  if (t == 3) a[14] = atomicExch(&a[15], 99);
}

KERNEL formats(int n) {
  printf("%d %5d|%-5d|%05d %u %x %X %o %c %%\n", -n, n, n, n, 7u, 255, 255, 8, 'q');
  printf("%f %.3f %10.2e %g %lld %llu %lx %s|%10s|%.2s %p\n", 1.5, 2.25, 12345.678, 0.1,
         -5000000000ll, 5000000000ull, 255ul, "text", "pad", "cut", (void*)0x1234);
  if (n == 3) printf("no arguments\n");
}

KERNEL heap(int** pointers, int* sums) {
  int* p = (int*)malloc(16 * sizeof(int));
  for (int i = 0; i < 16; ++i) p[i] = threadIdx.x + i;
  pointers[threadIdx.x] = p;
  __syncthreads();
  int* q = pointers[(threadIdx.x + 1) % blockDim.x];
  int sum = 0;
  for (int i = 0; i < 16; ++i) sum += q[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  free(p);
}

KERNEL assertion(int n) { assert(threadIdx.x < n); }
KERNEL trap() {
  if (threadIdx.x == 33) asm volatile("trap;");
}
KERNEL out_of_bounds(int* p, int n) { p[threadIdx.x + n] = 1; }
KERNEL misaligned(char* p) { *(int*)(p + threadIdx.x % 2) = 1; }
KERNEL null_read(int* p, int* out) { out[0] = p[threadIdx.x]; }
KERNEL shared_out_of_bounds(int i) {
  __shared__ volatile int s[64];
  s[i] = 1;
}
KERNEL deadlock() {
  if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");
}

struct Big {
  int values[20];
  double scale;
};
KERNEL by_value(Big big, int* out) {
  int local[20];
  for (int i = 0; i < 20; ++i) local[i] = big.values[(i * 7) % 20];
  out[threadIdx.x] =
      (int)(local[(threadIdx.x * 3) % 20] * big.scale) + big.values[threadIdx.x % 20];
}

KERNEL globals(int* out) {
  atomicAdd(counter_address, 1);
  out[0] = counter;
}

extern __shared__ int dynamic[];
KERNEL dynamic_shared(int* out, int n) {
  __shared__ int fixed[3];
  if (threadIdx.x < 3) fixed[threadIdx.x] = threadIdx.x * 100;
  for (int i = threadIdx.x; i < n; i += blockDim.x) dynamic[i] = i;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = dynamic[n - 1 - i] + fixed[i % 3];
}

__device__ __noinline__ int ReadGeneric(const int* p) { return *p; }
KERNEL generic_addresses(int* out) {
  __shared__ int s[32];
  int l[4] = {1, 2, 3, (int)threadIdx.x};
  s[threadIdx.x] = threadIdx.x * 2;
  __syncwarp();
  const int* p = threadIdx.x % 3 == 0   ? &s[31 - threadIdx.x]
                 : threadIdx.x % 3 == 1 ? &l[threadIdx.x % 4]
                                        : &coefficients[threadIdx.x % 4];
  out[threadIdx.x] = ReadGeneric(p);
}

KERNEL cluster_exchange(int* out) {
  __shared__ int s[32];
  auto cluster = cg::this_cluster();
  unsigned rank = cluster.block_rank(), size = cluster.num_blocks();
  s[threadIdx.x] = rank * 100 + threadIdx.x;
  cluster.sync();
  int* other = cluster.map_shared_rank(s, (rank + 1) % size);
  out[blockIdx.x * blockDim.x + threadIdx.x] = other[31 - threadIdx.x];
  atomicAdd(cluster.map_shared_rank(&s[0], 0), 0);
  cluster.sync();
}

KERNEL block_barrier(int* out, const int* in) {
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  __shared__ int s[64];
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  for (int round = 0; round < 3; ++round) {
    cuda::memcpy_async(&s[threadIdx.x], &in[threadIdx.x], sizeof(int), bar);
    bar.arrive_and_wait();
    out[64 * round + threadIdx.x] = s[(threadIdx.x + round) % 64];
    bar.arrive_and_wait();
  }
}

template <int kTile>
__device__ void MatrixProduct(const float* a, const float* b, float* c, int n) {
  __shared__ float sa[kTile][kTile], sb[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y;
  const int column = blockIdx.x * kTile + x, row = blockIdx.y * kTile + y;
  float sum = 0;
  for (int t = 0; t < n; t += kTile) {
    sa[y][x] = a[row * n + t + x];
    sb[y][x] = b[(t + y) * n + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += sa[y][k] * sb[k][x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}
KERNEL matrix_product(const float* a, const float* b, float* c, int n) {
  MatrixProduct<16>(a, b, c, n);
}

KERNEL timers(long long* out) {
  long long start = clock64();
  while (clock64() - start < 5000) {
  }
  out[0] = clock64() - start;
  __nanosleep(200);
}

// c (16 x 16, by rows) = a (16 x 16, by rows) * b (16 x 16, by columns) + c
KERNEL wmma_half(const half* a, const half* b, float* c) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> fa;
  fragment<matrix_b, 16, 16, 16, half, col_major> fb;
  fragment<accumulator, 16, 16, 16, float> fc;
  load_matrix_sync(fa, a, 16);
  load_matrix_sync(fb, b, 16);
  load_matrix_sync(fc, c, 16, mem_row_major);
  mma_sync(fc, fa, fb, fc);
  for (int i = 0; i < fc.num_elements; ++i) fc.x[i] *= 2;
  store_matrix_sync(c, fc, 16, mem_row_major);
}
KERNEL wmma_bytes(const signed char* a, const signed char* b, int* c) {
  using namespace nvcuda::wmma;
  __shared__ int result[256];
  fragment<matrix_a, 16, 16, 16, signed char, row_major> fa;
  fragment<matrix_b, 16, 16, 16, signed char, col_major> fb;
  fragment<accumulator, 16, 16, 16, int> fc;
  fill_fragment(fc, 5);
  load_matrix_sync(fa, a, 16);
  load_matrix_sync(fb, b, 16);
  mma_sync(fc, fa, fb, fc);
  store_matrix_sync(result, fc, 16, mem_row_major);
  for (int i = threadIdx.x; i < 256; i += 32) c[i] = result[i];
}
// c (16 x 8) = a (16 x 16) * b (16 x 8), all by rows.
KERNEL mma_half(const half* a, const half* b, float* c) {
  __shared__ __align__(16) half sa[16][16];
  __shared__ __align__(16) half sb[16][8];
  for (int i = threadIdx.x; i < 256; i += 32) sa[i / 16][i % 16] = a[i];
  for (int i = threadIdx.x; i < 128; i += 32) sb[i / 8][i % 8] = b[i];
  __syncwarp();
  unsigned ra[4], rb[2];
  unsigned pa = __cvta_generic_to_shared(&sa[threadIdx.x % 16][threadIdx.x / 16 * 8]);
  unsigned pb = __cvta_generic_to_shared(&sb[threadIdx.x % 16][0]);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3])
               : "r"(pa));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(rb[0]), "=r"(rb[1])
               : "r"(pb));
  float d[4];
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]), "f"(0.5f));
  int row = threadIdx.x / 4, column = threadIdx.x % 4 * 2;
  c[row * 8 + column] = d[0];
  c[row * 8 + column + 1] = d[1];
  c[(row + 8) * 8 + column] = d[2];
  c[(row + 8) * 8 + column + 1] = d[3];
}
