// Compiled to fatbins of every kind, which the tests take apart.
__device__ int counter = 7;

__global__ void Scale(float* values, float factor, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= factor;
}

__global__ void Count(int* out) { *out = atomicAdd(&counter, 1); }
