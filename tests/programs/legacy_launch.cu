// The launch interface of CUDA 3: block shape, parameters and grid are set one after the other.
#include "check_driver.h"

__global__ void Scale(float* out, float factor, int add) {
  extern __shared__ int scratch[];
  const int block = blockIdx.y * gridDim.x + blockIdx.x;
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
  scratch[thread] = thread;
  __syncthreads();
  out[block * blockDim.x * blockDim.y + thread] = factor * scratch[thread] + add + 1000 * block;
}

int main() {
  check::UsePrimaryContext();
  cudaFunction_t function;
  CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(&Scale)));
  float* out = check::Zeroed<float>(32 * 6);
  CUstream stream;
  CHECK_CU(cuStreamCreate(&stream, 0));
  CHECK_CU(cuFuncSetBlockShape(function, 8, 4, 1));
  CHECK_CU(cuFuncSetSharedSize(function, 32 * sizeof(int)));
  CHECK_CU(cuParamSetv(function, 0, &out, sizeof(out)));
  CHECK_CU(cuParamSetf(function, 8, 0.5f));
  CHECK_CU(cuParamSeti(function, 12, 7));
  CHECK_CU(cuParamSetSize(function, 16));
  std::vector<float> want(32 * 6);
  for (int i = 0; i < 32 * 6; ++i) want[i] = 0.5f * (i % 32) + 7 + 1000 * (i / 32);
  const std::vector<float> first(want.begin(), want.begin() + 32);
  CHECK_CU(cuLaunch(function));
  check::Compare("cuLaunch", check::Download(out, 32), first);
  CHECK(cudaMemset(out, 0, 32 * 6 * sizeof(float)));
  CHECK_CU(cuLaunchGrid(function, 3, 2));
  check::Compare("cuLaunchGrid", check::Download(out, 32 * 6), want);
  CHECK(cudaMemset(out, 0, 32 * 6 * sizeof(float)));
  CHECK_CU(cuLaunchGridAsync(function, 2, 3, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  check::Compare("cuLaunchGridAsync", check::Download(out, 32 * 6), want);
  EXPECT_CU(cuFuncSetBlockShape(function, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuFuncSetBlockShape(function, 64, 1, 65), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuFuncSetSharedSize(function, 48 * 1024 + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuLaunchGrid(function, 0, 1), CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuParamSetSize(function, 20));
  EXPECT_CU(cuLaunch(function), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  CHECK_CU(cuStreamDestroy(stream));
  CHECK(cudaFree(out));
  return check::Ok();
}
