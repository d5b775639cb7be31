// cuBLAS in single precision: products of several shapes and transpositions, each against a CPU
// reference. The inputs are small whole numbers, so every order of summation gives the same bits.
#include <cublas_v2.h>

#include <thread>

#include "../check.h"

#define CHECK_BLAS(call) REQUIRE((call) == CUBLAS_STATUS_SUCCESS)

void Test(cublasHandle_t handle, int m, int n, int k, bool transpose_a, bool transpose_b,
          float alpha, float beta, bool other_thread = false) {
  check::Random random(m * 31 + n * 17 + k);
  auto fill = [&](int count) {
    std::vector<float> values(count);
    for (float& value : values)
      value = static_cast<float>(static_cast<int>(random.Next32() % 15) - 7);
    return values;
  };
  // Column-major.
  std::vector<float> a = fill(m * k), b = fill(k * n), c = fill(m * n), want(m * n);
  for (int column = 0; column < n; ++column) {
    for (int row = 0; row < m; ++row) {
      float sum = 0.0f;
      for (int i = 0; i < k; ++i) {
        sum += (transpose_a ? a[row * k + i] : a[i * m + row]) *
               (transpose_b ? b[i * n + column] : b[column * k + i]);
      }
      want[column * m + row] = alpha * sum + beta * c[column * m + row];
    }
  }
  float* device_a = check::Upload(a);
  float* device_b = check::Upload(b);
  float* device_c = check::Upload(c);
  const auto multiply = [&] {
    CHECK_BLAS(cublasSgemm(handle, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                           transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, k, &alpha, device_a,
                           transpose_a ? k : m, device_b, transpose_b ? n : k, &beta, device_c, m));
  };
  if (other_thread) {
    std::thread(multiply).join();
  } else {
    multiply();
  }
  CHECK(cudaDeviceSynchronize());
  check::Compare("product", check::Download(device_c, m * n), want);
  CHECK(cudaFree(device_a));
  CHECK(cudaFree(device_b));
  CHECK(cudaFree(device_c));
}

int main() {
  cublasHandle_t handle = nullptr;
  CHECK_BLAS(cublasCreate(&handle));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  Test(handle, 64, 64, 64, false, false, 1.0f, 0.0f);
  Test(handle, 512, 512, 512, false, false, 1.0f, 0.0f);
  Test(handle, 300, 200, 100, true, false, 2.0f, 1.0f);
  CHECK_BLAS(cublasSetStream(handle, stream));
  Test(handle, 129, 65, 1000, false, true, -1.0f, 3.0f);
  Test(handle, 1, 1024, 77, true, true, 0.5f, 0.0f);
  // In a thread whose first call of CUDA is cuBLAS's.
  Test(handle, 96, 32, 48, false, false, 1.0f, 0.0f, true);
  CHECK_BLAS(cublasDestroy(handle));
  CHECK(cudaStreamDestroy(stream));
  return check::Ok();
}
