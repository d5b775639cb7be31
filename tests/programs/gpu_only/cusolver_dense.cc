// cuSOLVER: a linear system by LU, one by Cholesky, the singular values of a matrix, and the
// eigenvalues of a symmetric matrix. All results are known in advance.
#include <cusolverDn.h>

#include <algorithm>
#include <cmath>

#include "../check.h"

#define CHECK_SOLVER(call) REQUIRE((call) == CUSOLVER_STATUS_SUCCESS)

void Verdict(const char* what, const std::vector<double>& got, const std::vector<double>& want,
             double limit) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::fabs(got[i] - want[i]) <= limit) continue;
    std::printf("%s: number %zu is %.17g instead of %.17g\n", what, i, got[i], want[i]);
    std::fflush(stdout);
    std::_Exit(1);
  }
  std::printf("%s: right\n", what);
}

// The matrix 4 I + [1 where |i - j| = 1], symmetric and positive definite. Its eigenvalues are
// 4 + 2 cos(pi k / (n + 1)).
std::vector<double> Tridiagonal(int n) {
  std::vector<double> matrix(n * n, 0.0);
  for (int i = 0; i < n; ++i) {
    matrix[i * n + i] = 4;
    if (i > 0) matrix[i * n + i - 1] = matrix[(i - 1) * n + i] = 1;
  }
  return matrix;
}

std::vector<double> Eigenvalues(int n) {
  std::vector<double> values(n);
  for (int k = 1; k <= n; ++k) values[k - 1] = 4 + 2 * std::cos(M_PI * k / (n + 1));
  std::sort(values.begin(), values.end());
  return values;
}

void TestLu(cusolverDnHandle_t handle, int n) {
  check::Random random(n);
  std::vector<double> matrix(n * n), x(n), b(n, 0.0);
  for (double& value : matrix) value = static_cast<int>(random.Next32() % 7) - 3;
  for (int i = 0; i < n; ++i) {
    matrix[i * n + i] += 4 * n;
    x[i] = static_cast<int>(random.Next32() % 21) - 10;
  }
  for (int column = 0; column < n; ++column)
    for (int row = 0; row < n; ++row) b[row] += matrix[column * n + row] * x[column];
  double* device_matrix = check::Upload(matrix);
  double* device_b = check::Upload(b);
  int* pivots = check::Zeroed<int>(n);
  int* info = check::Zeroed<int>(1);
  int work_size = 0;
  CHECK_SOLVER(cusolverDnDgetrf_bufferSize(handle, n, n, device_matrix, n, &work_size));
  double* work = check::Zeroed<double>(std::max(work_size, 1));
  CHECK_SOLVER(cusolverDnDgetrf(handle, n, n, device_matrix, n, work, pivots, info));
  CHECK_SOLVER(
      cusolverDnDgetrs(handle, CUBLAS_OP_N, n, 1, device_matrix, n, pivots, device_b, n, info));
  CHECK(cudaDeviceSynchronize());
  REQUIRE(check::Download(info, 1)[0] == 0);
  Verdict("LU", check::Download(device_b, n), x, 1e-9);
  for (void* memory :
       {static_cast<void*>(device_matrix), static_cast<void*>(device_b), static_cast<void*>(pivots),
        static_cast<void*>(info), static_cast<void*>(work)}) {
    CHECK(cudaFree(memory));
  }
}

void TestCholesky(cusolverDnHandle_t handle, int n) {
  const std::vector<double> matrix = Tridiagonal(n);
  std::vector<double> x(n), b(n, 0.0);
  for (int i = 0; i < n; ++i) x[i] = i % 5 - 2;
  for (int column = 0; column < n; ++column)
    for (int row = 0; row < n; ++row) b[row] += matrix[column * n + row] * x[column];
  double* device_matrix = check::Upload(matrix);
  double* device_b = check::Upload(b);
  int* info = check::Zeroed<int>(1);
  int work_size = 0;
  CHECK_SOLVER(
      cusolverDnDpotrf_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, n, device_matrix, n, &work_size));
  double* work = check::Zeroed<double>(std::max(work_size, 1));
  CHECK_SOLVER(
      cusolverDnDpotrf(handle, CUBLAS_FILL_MODE_LOWER, n, device_matrix, n, work, work_size, info));
  REQUIRE(check::Download(info, 1)[0] == 0);
  CHECK_SOLVER(
      cusolverDnDpotrs(handle, CUBLAS_FILL_MODE_LOWER, n, 1, device_matrix, n, device_b, n, info));
  CHECK(cudaDeviceSynchronize());
  Verdict("Cholesky", check::Download(device_b, n), x, 1e-10);
  for (void* memory : {static_cast<void*>(device_matrix), static_cast<void*>(device_b),
                       static_cast<void*>(info), static_cast<void*>(work)}) {
    CHECK(cudaFree(memory));
  }
}

void TestSingularValues(cusolverDnHandle_t handle, int n) {
  double* device_matrix = check::Upload(Tridiagonal(n));
  double* values = check::Zeroed<double>(n);
  double* u = check::Zeroed<double>(n * n);
  double* v = check::Zeroed<double>(n * n);
  int* info = check::Zeroed<int>(1);
  int work_size = 0;
  CHECK_SOLVER(cusolverDnDgesvd_bufferSize(handle, n, n, &work_size));
  double* work = check::Zeroed<double>(std::max(work_size, 1));
  CHECK_SOLVER(cusolverDnDgesvd(handle, 'A', 'A', n, n, device_matrix, n, values, u, n, v, n, work,
                                work_size, nullptr, info));
  CHECK(cudaDeviceSynchronize());
  REQUIRE(check::Download(info, 1)[0] == 0);
  std::vector<double> want = Eigenvalues(n);  // all of them are positive
  std::reverse(want.begin(), want.end());
  Verdict("singular values", check::Download(values, n), want, 1e-10);
  for (void* memory :
       {static_cast<void*>(device_matrix), static_cast<void*>(values), static_cast<void*>(u),
        static_cast<void*>(v), static_cast<void*>(info), static_cast<void*>(work)}) {
    CHECK(cudaFree(memory));
  }
}

void TestEigenvalues(cusolverDnHandle_t handle, int n) {
  double* device_matrix = check::Upload(Tridiagonal(n));
  double* values = check::Zeroed<double>(n);
  int* info = check::Zeroed<int>(1);
  int work_size = 0;
  CHECK_SOLVER(cusolverDnDsyevd_bufferSize(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER,
                                           n, device_matrix, n, values, &work_size));
  double* work = check::Zeroed<double>(std::max(work_size, 1));
  CHECK_SOLVER(cusolverDnDsyevd(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n,
                                device_matrix, n, values, work, work_size, info));
  CHECK(cudaDeviceSynchronize());
  REQUIRE(check::Download(info, 1)[0] == 0);
  Verdict("eigenvalues", check::Download(values, n), Eigenvalues(n), 1e-10);
  for (void* memory : {static_cast<void*>(device_matrix), static_cast<void*>(values),
                       static_cast<void*>(info), static_cast<void*>(work)}) {
    CHECK(cudaFree(memory));
  }
}

int main() {
  cusolverDnHandle_t handle;
  CHECK_SOLVER(cusolverDnCreate(&handle));
  TestLu(handle, 200);
  TestCholesky(handle, 150);
  TestSingularValues(handle, 64);
  TestEigenvalues(handle, 100);
  CHECK_SOLVER(cusolverDnDestroy(handle));
  return check::Ok();
}
