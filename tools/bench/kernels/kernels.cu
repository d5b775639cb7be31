// Times small kernels of different kinds, one after the other, and prints a digest of what each
// computes. It measures how fast the software GPU interprets:
//
//   detshare run --standalone=soft -- kernels [NAME]
//
// Each row is the shortest of the runs of 0.7 s.
#include <cuda_runtime.h>
#include <mma.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr int kElements = 4 << 20;
constexpr double kSeconds = 0.7;

void Check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "kernels: %s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}

constexpr int kTile = 32;
__global__ void TiledProduct(const float* a, const float* b, float* c, int n) {
  __shared__ float a_tile[kTile][kTile], b_tile[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k += kTile) {
    a_tile[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
    b_tile[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

__global__ void Gravity(const float4* bodies, float4* forces, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 own = bodies[i];
  float x = 0, y = 0, z = 0;
  for (int j = 0; j < n; ++j) {
    const float4 other = bodies[j];
    const float dx = other.x - own.x, dy = other.y - own.y, dz = other.z - own.z;
    const float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f);
    const float force = other.w * inverse * inverse * inverse;
    x += dx * force;
    y += dy * force;
    z += dz * force;
  }
  forces[i] = make_float4(x, y, z, 0);
}

// Threads of a warp leave the loop at different times.
__global__ void Mandelbrot(int* steps, int width) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  const float real = x * 3.0f / width - 2, imaginary = y * 2.0f / width - 1;
  float a = 0, b = 0;
  int step = 0;
  while (step < 256 && a * a + b * b < 4) {
    const float next = a * a - b * b + real;
    b = 2 * a * b + imaginary;
    a = next;
    ++step;
  }
  steps[y * width + x] = step;
}

constexpr int kBins = 256;
__global__ void Histogram(const uint32_t* values, int n, uint32_t* bins) {
  __shared__ uint32_t own[kBins];
  own[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * kBins + threadIdx.x; i < n; i += gridDim.x * kBins)
    atomicAdd(&own[values[i] % kBins], 1);
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}

__global__ void Sum(const float* values, int n, float* sums) {
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    sum += values[i];
  for (int k = 16; k > 0; k /= 2) sum += __shfl_down_sync(~0u, sum, k);
  __shared__ float warps[8];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < 8; ++i) sum += warps[i];
  sums[blockIdx.x] = sum;
}

__global__ void IntegerRounds(uint32_t* out, int rounds) {
  uint32_t a = blockIdx.x * blockDim.x + threadIdx.x, b = a * 7, c = a ^ 0x55aa, d = ~a;
  for (int i = 0; i < rounds; ++i) {
    const uint32_t next = (a << 5 | a >> 27) + ((b & c) | (~b & d)) + i + 0x5a827999;
    d = c;
    c = b << 30 | b >> 2;
    b = a;
    a = next ^ d;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = a ^ b ^ c ^ d;
}

__global__ void Stencil(const float* from, float* to, int n) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x + 1,
            y = blockIdx.y * blockDim.y + threadIdx.y + 1;
  if (x >= n - 1 || y >= n - 1) return;
  to[y * n + x] = 0.25f * (from[y * n + x - 1] + from[y * n + x + 1] + from[(y - 1) * n + x] +
                           from[(y + 1) * n + x]);
}

__global__ void Series(double* out, int terms) {
  const double x = threadIdx.x * 1e-3 + blockIdx.x;
  double sum = 0;
  for (int i = 0; i < terms; ++i) sum = sum * x + 1.0 / (i + 1);
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// n by n by n halves, a tile of 16 by 16 for each warp.
__global__ void Fragments(const half* a, const half* b, float* c, int n) {
  using namespace nvcuda::wmma;
  const int row = blockIdx.y * 16, column = (blockIdx.x * 4 + threadIdx.x / 32) * 16;
  fragment<matrix_a, 16, 16, 16, half, row_major> of_a;
  fragment<matrix_b, 16, 16, 16, half, col_major> of_b;
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 0.0f);
  for (int k = 0; k < n; k += 16) {
    load_matrix_sync(of_a, a + row * n + k, n);
    load_matrix_sync(of_b, b + column * n + k, n);
    mma_sync(sum, of_a, of_b, sum);
  }
  store_matrix_sync(c + row * n + column, sum, n, mem_row_major);
}

// Products of registers, 16 by 8 by 16.
__global__ void Mma(const uint32_t* from, float* to, int rounds) {
  uint32_t a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = from[threadIdx.x * 4 + i] & 0x3bff3bff;
  for (int i = 0; i < 2; ++i) b[i] = from[threadIdx.x * 2 + i] & 0x3bff3bff;
  float sum[4] = {};
  for (int i = 0; i < rounds; ++i) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; i < 4; ++i) to[thread * 4 + i] = sum[i];
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  std::vector<float> values(kElements);
  for (int i = 0; i < kElements; ++i) values[i] = static_cast<float>(i * 7919ll % 1000) * 1e-3f;
  constexpr size_t kBytes = kElements * sizeof(float);
  float *a, *b, *out;
  Check(cudaMalloc(&a, kBytes), "cudaMalloc");
  Check(cudaMalloc(&b, kBytes), "cudaMalloc");
  Check(cudaMalloc(&out, kBytes), "cudaMalloc");
  Check(cudaMemcpy(a, values.data(), kBytes, cudaMemcpyDefault), "cudaMemcpy");
  Check(cudaMemcpy(b, values.data(), kBytes, cudaMemcpyDefault), "cudaMemcpy");

  struct Row {
    const char* name;
    std::function<void()> launch;
  };
  const Row rows[] = {
      {"product", [&] { TiledProduct<<<dim3(8, 8), dim3(32, 32)>>>(a, b, out, 256); }},
      {"gravity",
       [&] {
         Gravity<<<8, 256>>>(reinterpret_cast<float4*>(a), reinterpret_cast<float4*>(out), 2048);
       }},
      {"mandelbrot", [&] { Mandelbrot<<<dim3(2, 256), 256>>>(reinterpret_cast<int*>(out), 512); }},
      {"histogram",
       [&] {
         Histogram<<<16, kBins>>>(reinterpret_cast<uint32_t*>(a), 1 << 20,
                                  reinterpret_cast<uint32_t*>(out));
       }},
      {"sum", [&] { Sum<<<64, 256>>>(a, kElements, out); }},
      {"integers", [&] { IntegerRounds<<<32, 256>>>(reinterpret_cast<uint32_t*>(out), 1000); }},
      {"stencil", [&] { Stencil<<<dim3(32, 128), dim3(32, 8)>>>(a, out, 1024); }},
      {"fragments",
       [&] {
         Fragments<<<dim3(8, 32), 128>>>(reinterpret_cast<half*>(a), reinterpret_cast<half*>(b),
                                         out, 512);
       }},
      {"mma", [&] { Mma<<<16, 128>>>(reinterpret_cast<uint32_t*>(a), out, 200); }},
      {"series", [&] { Series<<<16, 256>>>(reinterpret_cast<double*>(out), 500); }},
  };
  bool known = only.empty();
  std::printf("%-12s %8s  %s\n", "kernel", "ms", "digest");
  for (const Row& row : rows) {
    if (!only.empty() && only != row.name) continue;
    known = true;
    using Clock = std::chrono::steady_clock;
    double least = 0;
    for (double all = 0; all < kSeconds;) {
      Check(cudaMemset(out, 0, kBytes), "cudaMemset");
      Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      const Clock::time_point begin = Clock::now();
      row.launch();
      Check(cudaDeviceSynchronize(), row.name);
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      least = all == 0 ? seconds : std::min(least, seconds);
      all += seconds;
    }
    Check(cudaMemcpy(values.data(), out, kBytes, cudaMemcpyDefault), "cudaMemcpy");
    uint64_t digest = 14695981039346656037u;
    for (const float value : values) {
      uint32_t bits;
      static_assert(sizeof(bits) == sizeof(value));
      __builtin_memcpy(&bits, &value, sizeof(bits));
      digest = (digest ^ bits) * 1099511628211u;
    }
    std::printf("%-12s %8.2f  %016llx\n", row.name, least * 1e3,
                static_cast<unsigned long long>(digest));
    std::fflush(stdout);
  }
  if (known) return 0;
  std::fprintf(stderr, "kernels: no kernel has this name: %s\n", only.c_str());
  return 2;
}
