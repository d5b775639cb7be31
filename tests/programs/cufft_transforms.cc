// cuFFT: transforms in one and two dimensions, complex and real, single and double precision,
// against a direct CPU reference. A forward and an inverse transform return the original values.
#include <cufft.h>

#include <cmath>
#include <complex>

#include "check.h"

#define CHECK_FFT(call) REQUIRE((call) == CUFFT_SUCCESS)

using Complex = std::complex<double>;

constexpr double kPi = 3.14159265358979323846;

// The direct sum over `rows` x `columns` values, which are row-major.
std::vector<Complex> Transform(const std::vector<Complex>& in, int rows, int columns) {
  std::vector<Complex> half(in.size()), out(in.size());
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < columns; ++k) {
      Complex sum = 0;
      for (int j = 0; j < columns; ++j)
        sum += in[row * columns + j] * std::polar(1.0, -2 * kPi * (j * k % columns) / columns);
      half[row * columns + k] = sum;
    }
  }
  for (int k = 0; k < columns; ++k) {
    for (int q = 0; q < rows; ++q) {
      Complex sum = 0;
      for (int row = 0; row < rows; ++row)
        sum += half[row * columns + k] * std::polar(1.0, -2 * kPi * (row * q % rows) / rows);
      out[q * columns + k] = sum;
    }
  }
  return out;
}

void Verdict(const char* what, double difference, double limit) {
  if (!(difference <= limit)) {
    std::printf("%s: differs by %g, more than %g\n", what, difference, limit);
    std::fflush(stdout);
    std::_Exit(1);
  }
  std::printf("%s: right\n", what);
}

std::vector<Complex> Values(int count, bool real) {
  check::Random random(count);
  std::vector<Complex> values(count);
  for (Complex& value : values) {
    value.real(static_cast<int>(random.Next32() % 9) - 4);
    if (!real) value.imag(static_cast<int>(random.Next32() % 9) - 4);
  }
  return values;
}

void TestSingle(int rows, int columns, cudaStream_t stream) {
  const int count = rows * columns;
  const std::vector<Complex> in = Values(count, false);
  std::vector<cufftComplex> host(count);
  for (int i = 0; i < count; ++i)
    host[i] = {static_cast<float>(in[i].real()), static_cast<float>(in[i].imag())};
  cufftComplex* data = check::Upload(host);
  cufftHandle plan;
  CHECK_FFT(rows == 1 ? cufftPlan1d(&plan, columns, CUFFT_C2C, 1)
                      : cufftPlan2d(&plan, rows, columns, CUFFT_C2C));
  CHECK_FFT(cufftSetStream(plan, stream));
  CHECK_FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
  CHECK(cudaStreamSynchronize(stream));
  const std::vector<cufftComplex> forward = check::Download(data, count);
  const std::vector<Complex> want = Transform(in, rows, columns);
  double difference = 0;
  for (int i = 0; i < count; ++i)
    difference = std::max(difference, std::abs(Complex(forward[i].x, forward[i].y) - want[i]));
  std::printf("%d x %d ", rows, columns);
  Verdict("C2C", difference, 1e-4 * std::sqrt(count) * 10);

  CHECK_FFT(cufftExecC2C(plan, data, data, CUFFT_INVERSE));
  CHECK(cudaStreamSynchronize(stream));
  const std::vector<cufftComplex> back = check::Download(data, count);
  difference = 0;
  for (int i = 0; i < count; ++i)
    difference =
        std::max(difference, std::abs(Complex(back[i].x / count, back[i].y / count) - in[i]));
  std::printf("%d x %d ", rows, columns);
  Verdict("C2C and back", difference, 1e-4);
  CHECK_FFT(cufftDestroy(plan));
  CHECK(cudaFree(data));
}

void TestReal(int rows, int columns) {
  const int count = rows * columns, half = columns / 2 + 1;
  const std::vector<Complex> in = Values(count, true);
  std::vector<double> host(count);
  for (int i = 0; i < count; ++i) host[i] = in[i].real();
  double* data = check::Upload(host);
  cufftDoubleComplex* spectrum = check::Zeroed<cufftDoubleComplex>(rows * half);
  cufftHandle plan;
  CHECK_FFT(rows == 1 ? cufftPlan1d(&plan, columns, CUFFT_D2Z, 1)
                      : cufftPlan2d(&plan, rows, columns, CUFFT_D2Z));
  CHECK_FFT(cufftExecD2Z(plan, data, spectrum));
  const std::vector<cufftDoubleComplex> got = check::Download(spectrum, rows * half);
  const std::vector<Complex> want = Transform(in, rows, columns);
  double difference = 0;
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < half; ++k) {
      const cufftDoubleComplex value = got[row * half + k];
      difference =
          std::max(difference, std::abs(Complex(value.x, value.y) - want[row * columns + k]));
    }
  }
  std::printf("%d x %d ", rows, columns);
  Verdict("D2Z", difference, 1e-9 * std::sqrt(count) * 10);
  CHECK_FFT(cufftDestroy(plan));
  CHECK(cudaFree(data));
  CHECK(cudaFree(spectrum));
}

// Eight transforms with one plan.
void TestBatch() {
  constexpr int kLength = 256, kBatch = 8;
  const std::vector<Complex> in = Values(kLength * kBatch, false);
  std::vector<cufftComplex> host(in.size());
  for (size_t i = 0; i < in.size(); ++i)
    host[i] = {static_cast<float>(in[i].real()), static_cast<float>(in[i].imag())};
  cufftComplex* data = check::Upload(host);
  cufftHandle plan;
  int length = kLength;
  CHECK_FFT(cufftPlanMany(&plan, 1, &length, nullptr, 1, kLength, nullptr, 1, kLength, CUFFT_C2C,
                          kBatch));
  CHECK_FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
  const std::vector<cufftComplex> got = check::Download(data, host.size());
  double difference = 0;
  for (int batch = 0; batch < kBatch; ++batch) {
    const auto begin = in.begin() + batch * kLength;
    const std::vector<Complex> want = Transform({begin, begin + kLength}, 1, kLength);
    for (int i = 0; i < kLength; ++i) {
      const cufftComplex value = got[batch * kLength + i];
      difference = std::max(difference, std::abs(Complex(value.x, value.y) - want[i]));
    }
  }
  Verdict("a batch of C2C", difference, 2e-2);
  CHECK_FFT(cufftDestroy(plan));
  CHECK(cudaFree(data));
}

int main() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  TestSingle(1, 1024, stream);
  TestSingle(1, 1000, stream);
  TestSingle(1, 997, stream);  // a prime, which needs another algorithm
  TestSingle(64, 32, stream);
  TestReal(1, 512);
  TestReal(30, 48);
  TestBatch();
  CHECK(cudaStreamDestroy(stream));
  return check::Ok();
}
