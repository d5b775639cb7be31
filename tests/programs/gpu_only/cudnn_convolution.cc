// cuDNN: a convolution with bias and ReLU, a pooling and a softmax. The inputs are small whole
// numbers, so the convolution's bits do not depend on the order of summation.
#include <cudnn.h>

#include <algorithm>
#include <cmath>

#include "../check.h"

#define CHECK_DNN(call) REQUIRE((call) == CUDNN_STATUS_SUCCESS)

constexpr int kImages = 2, kIn = 8, kOut = 16, kHeight = 14, kWidth = 10, kFilter = 3;

std::vector<float> Values(int count, int seed) {
  check::Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random.Next32() % 7) - 3);
  return values;
}

cudnnTensorDescriptor_t Tensor(int images, int channels, int height, int width) {
  cudnnTensorDescriptor_t tensor;
  CHECK_DNN(cudnnCreateTensorDescriptor(&tensor));
  CHECK_DNN(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, images,
                                       channels, height, width));
  return tensor;
}

std::vector<float> Convolve(const std::vector<float>& x, const std::vector<float>& w,
                            const std::vector<float>& bias) {
  std::vector<float> y(kImages * kOut * kHeight * kWidth);
  for (int n = 0; n < kImages; ++n) {
    for (int k = 0; k < kOut; ++k) {
      for (int row = 0; row < kHeight; ++row) {
        for (int column = 0; column < kWidth; ++column) {
          float sum = bias[k];
          for (int c = 0; c < kIn; ++c) {
            for (int i = 0; i < kFilter; ++i) {
              for (int j = 0; j < kFilter; ++j) {
                const int from_row = row + i - 1, from_column = column + j - 1;
                if (from_row < 0 || from_row >= kHeight || from_column < 0 || from_column >= kWidth)
                  continue;
                sum += x[((n * kIn + c) * kHeight + from_row) * kWidth + from_column] *
                       w[((k * kIn + c) * kFilter + i) * kFilter + j];
              }
            }
          }
          y[((n * kOut + k) * kHeight + row) * kWidth + column] = std::max(sum, 0.0f);
        }
      }
    }
  }
  return y;
}

int main() {
  cudnnHandle_t handle;
  CHECK_DNN(cudnnCreate(&handle));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK_DNN(cudnnSetStream(handle, stream));
  const std::vector<float> x = Values(kImages * kIn * kHeight * kWidth, 1);
  const std::vector<float> w = Values(kOut * kIn * kFilter * kFilter, 2);
  const std::vector<float> bias = Values(kOut, 3);
  const std::vector<float> want = Convolve(x, w, bias);
  float* device_x = check::Upload(x);
  float* device_w = check::Upload(w);
  float* device_bias = check::Upload(bias);
  float* device_y = check::Zeroed<float>(want.size());

  const cudnnTensorDescriptor_t x_tensor = Tensor(kImages, kIn, kHeight, kWidth);
  const cudnnTensorDescriptor_t y_tensor = Tensor(kImages, kOut, kHeight, kWidth);
  const cudnnTensorDescriptor_t bias_tensor = Tensor(1, kOut, 1, 1);
  cudnnFilterDescriptor_t filter;
  CHECK_DNN(cudnnCreateFilterDescriptor(&filter));
  CHECK_DNN(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, kOut, kIn,
                                       kFilter, kFilter));
  cudnnConvolutionDescriptor_t convolution;
  CHECK_DNN(cudnnCreateConvolutionDescriptor(&convolution));
  CHECK_DNN(cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                            CUDNN_DATA_FLOAT));
  const auto algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  size_t bytes = 0;
  CHECK_DNN(cudnnGetConvolutionForwardWorkspaceSize(handle, x_tensor, filter, convolution, y_tensor,
                                                    algorithm, &bytes));
  char* workspace = check::Zeroed<char>(bytes + 1);
  const float one = 1, zero = 0;
  CHECK_DNN(cudnnConvolutionForward(handle, &one, x_tensor, device_x, filter, device_w, convolution,
                                    algorithm, workspace, bytes, &zero, y_tensor, device_y));
  CHECK_DNN(cudnnAddTensor(handle, &one, bias_tensor, device_bias, &one, y_tensor, device_y));
  cudnnActivationDescriptor_t activation;
  CHECK_DNN(cudnnCreateActivationDescriptor(&activation));
  CHECK_DNN(
      cudnnSetActivationDescriptor(activation, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
  CHECK_DNN(cudnnActivationForward(handle, activation, &one, y_tensor, device_y, &zero, y_tensor,
                                   device_y));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<float> got = check::Download(device_y, want.size());
  for (float& value : got) value += 0.0f;  // the sign of a zero does not matter
  check::Compare("convolution, bias and ReLU", got, want);

  // Each channel's largest value.
  cudnnPoolingDescriptor_t pooling;
  CHECK_DNN(cudnnCreatePoolingDescriptor(&pooling));
  CHECK_DNN(cudnnSetPooling2dDescriptor(pooling, CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN, kHeight,
                                        kWidth, 0, 0, kHeight, kWidth));
  const cudnnTensorDescriptor_t pooled_tensor = Tensor(kImages, kOut, 1, 1);
  float* device_pooled = check::Zeroed<float>(kImages * kOut);
  CHECK_DNN(cudnnPoolingForward(handle, pooling, &one, y_tensor, device_y, &zero, pooled_tensor,
                                device_pooled));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<float> largest(kImages * kOut);
  for (int i = 0; i < kImages * kOut; ++i) {
    largest[i] = *std::max_element(want.begin() + i * kHeight * kWidth,
                                   want.begin() + (i + 1) * kHeight * kWidth);
  }
  check::Compare("pooling", check::Download(device_pooled, largest.size()), largest);

  CHECK_DNN(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one,
                                pooled_tensor, device_pooled, &zero, pooled_tensor, device_pooled));
  CHECK(cudaStreamSynchronize(stream));
  const std::vector<float> shares = check::Download(device_pooled, kImages * kOut);
  for (int n = 0; n < kImages; ++n) {
    double sum = 0;
    for (int k = 0; k < kOut; ++k) sum += shares[n * kOut + k];
    REQUIRE(std::fabs(sum - 1) < 1e-5);
  }
  std::printf("softmax: right\n");

  CHECK_DNN(cudnnDestroyPoolingDescriptor(pooling));
  CHECK_DNN(cudnnDestroyActivationDescriptor(activation));
  CHECK_DNN(cudnnDestroyConvolutionDescriptor(convolution));
  CHECK_DNN(cudnnDestroyFilterDescriptor(filter));
  for (cudnnTensorDescriptor_t tensor : {x_tensor, y_tensor, bias_tensor, pooled_tensor})
    CHECK_DNN(cudnnDestroyTensorDescriptor(tensor));
  CHECK_DNN(cudnnDestroy(handle));
  for (void* memory : {static_cast<void*>(device_x), static_cast<void*>(device_w),
                       static_cast<void*>(device_bias), static_cast<void*>(device_y),
                       static_cast<void*>(workspace), static_cast<void*>(device_pooled)}) {
    CHECK(cudaFree(memory));
  }
  CHECK(cudaStreamDestroy(stream));
  return check::Ok();
}
