// cuBLASLt: half-precision products with single-precision sums and with bias and ReLU in the
// epilogue. Its heuristic chooses the algorithm. The inputs are small whole numbers, so the bits do
// not depend on the order of summation.
#include <cublasLt.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "../check.h"

#define CHECK_BLAS(call) REQUIRE((call) == CUBLAS_STATUS_SUCCESS)

void Test(cublasLtHandle_t handle, cudaStream_t stream, int m, int n, int k, bool epilogue) {
  check::Random random(m + 3 * n + 7 * k);
  const auto fill = [&](int count) {
    std::vector<__half> values(count);
    for (__half& value : values)
      value = __float2half(static_cast<float>(static_cast<int>(random.Next32() % 7) - 3));
    return values;
  };
  // Column-major; A is transposed.
  const std::vector<__half> a = fill(k * m), b = fill(k * n), bias = fill(m);
  std::vector<__half> want(m * n);
  for (int column = 0; column < n; ++column) {
    for (int row = 0; row < m; ++row) {
      float sum = 0;
      for (int i = 0; i < k; ++i)
        sum += __half2float(a[row * k + i]) * __half2float(b[column * k + i]);
      if (epilogue) sum = std::max(sum + __half2float(bias[row]), 0.0f);
      want[column * m + row] = __float2half(sum);
    }
  }
  __half* device_a = check::Upload(a);
  __half* device_b = check::Upload(b);
  __half* device_bias = check::Upload(bias);
  __half* device_c = check::Zeroed<__half>(m * n);

  cublasLtMatmulDesc_t operation;
  CHECK_BLAS(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t transpose = CUBLAS_OP_T;
  CHECK_BLAS(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                            sizeof(transpose)));
  if (epilogue) {
    const cublasLtEpilogue_t kind = CUBLASLT_EPILOGUE_RELU_BIAS;
    CHECK_BLAS(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &kind,
                                              sizeof(kind)));
    CHECK_BLAS(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                              &device_bias, sizeof(device_bias)));
  }
  cublasLtMatrixLayout_t layout_a, layout_b, layout_c;
  CHECK_BLAS(cublasLtMatrixLayoutCreate(&layout_a, CUDA_R_16F, k, m, k));
  CHECK_BLAS(cublasLtMatrixLayoutCreate(&layout_b, CUDA_R_16F, k, n, k));
  CHECK_BLAS(cublasLtMatrixLayoutCreate(&layout_c, CUDA_R_16F, m, n, m));
  cublasLtMatmulPreference_t preference;
  CHECK_BLAS(cublasLtMatmulPreferenceCreate(&preference));
  const size_t workspace_bytes = 32 << 20;
  CHECK_BLAS(cublasLtMatmulPreferenceSetAttribute(preference,
                                                  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &workspace_bytes, sizeof(workspace_bytes)));
  void* workspace;
  CHECK(cudaMalloc(&workspace, workspace_bytes));
  cublasLtMatmulHeuristicResult_t heuristic;
  int found = 0;
  CHECK_BLAS(cublasLtMatmulAlgoGetHeuristic(handle, operation, layout_a, layout_b, layout_c,
                                            layout_c, preference, 1, &heuristic, &found));
  REQUIRE(found == 1);
  const float alpha = 1, beta = 0;
  CHECK_BLAS(cublasLtMatmul(handle, operation, &alpha, device_a, layout_a, device_b, layout_b,
                            &beta, device_c, layout_c, device_c, layout_c, &heuristic.algo,
                            workspace, workspace_bytes, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<uint16_t> got_bits(m * n), want_bits(m * n);
  CHECK(cudaMemcpy(got_bits.data(), device_c, m * n * 2, cudaMemcpyDeviceToHost));
  std::memcpy(want_bits.data(), want.data(), m * n * 2);
  for (uint16_t& bits : got_bits) {
    if (bits == 0x8000) bits = 0;  // the sign of a zero does not matter
  }
  for (uint16_t& bits : want_bits) {
    if (bits == 0x8000) bits = 0;
  }
  check::Compare(epilogue ? "product, bias and ReLU" : "product", got_bits, want_bits);
  CHECK_BLAS(cublasLtMatmulPreferenceDestroy(preference));
  CHECK_BLAS(cublasLtMatrixLayoutDestroy(layout_a));
  CHECK_BLAS(cublasLtMatrixLayoutDestroy(layout_b));
  CHECK_BLAS(cublasLtMatrixLayoutDestroy(layout_c));
  CHECK_BLAS(cublasLtMatmulDescDestroy(operation));
  for (void* memory : {static_cast<void*>(device_a), static_cast<void*>(device_b),
                       static_cast<void*>(device_c), static_cast<void*>(device_bias), workspace}) {
    CHECK(cudaFree(memory));
  }
}

int main() {
  cublasLtHandle_t handle;
  CHECK_BLAS(cublasLtCreate(&handle));
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Test(handle, stream, 128, 64, 256, false);
  Test(handle, stream, 512, 512, 128, true);
  Test(handle, stream, 768, 8, 96, false);
  CHECK_BLAS(cublasLtDestroy(handle));
  CHECK(cudaStreamDestroy(stream));
  return check::Ok();
}
