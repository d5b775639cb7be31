// Kernels that need few and many registers.
extern "C" __global__ void few(int* out) { *out = 1; }

extern "C" __global__ void __launch_bounds__(512) many(float* out, const float* in) {
  constexpr int kValues = 64;
  float values[kValues];
#pragma unroll
  for (int i = 0; i < kValues; ++i) values[i] = in[threadIdx.x + i * 512];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kValues; ++i) out[threadIdx.x + i * 512] = values[kValues - 1 - i];
}
