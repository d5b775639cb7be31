// Errors: impossible launches, invalid arguments, and requests that are too large. Which error is
// remembered, and that the program goes on after each error.
#include "check.h"

__global__ void Touch(int* out) {
  if (threadIdx.x == 0 && blockIdx.x == 0) *out += 1;
}

void Show(const char* what, cudaError_t error) {
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
}

int main() {
  int* out = check::Zeroed<int>(1);

  // A launch reports its error as the last error. Peeking keeps it, getting clears it.
  Touch<<<1, 2048>>>(out);
  cudaError_t impossible = cudaPeekAtLastError();
  Show("too many threads", impossible);
  REQUIRE(impossible != cudaSuccess);
  REQUIRE(cudaPeekAtLastError() == impossible);
  REQUIRE(cudaGetLastError() == impossible);
  REQUIRE(cudaGetLastError() == cudaSuccess);
  Touch<<<0, 32>>>(out);
  Show("no blocks", cudaGetLastError());
  Touch<<<1, 0>>>(out);
  Show("no threads", cudaGetLastError());
  Touch<<<dim3(1, 65536), 32>>>(out);
  Show("too many rows of blocks", cudaGetLastError());
  Touch<<<1, dim3(1, 1, 65)>>>(out);
  Show("block too deep", cudaGetLastError());
  Touch<<<1, 32, 4 << 20>>>(out);
  Show("too much shared memory", cudaGetLastError());
  Touch<<<1, 32>>>(out);
  CHECK(cudaGetLastError());
  REQUIRE(check::Download(out, 1)[0] == 1);

  // The error of a failed call is remembered until the program gets it. A successful call does not
  // clear it.
  void* memory = out;
  Show("far too much memory", cudaMalloc(&memory, std::size_t{1} << 60));
  int device = -1;
  CHECK(cudaGetDevice(&device));
  Show("remembered", cudaPeekAtLastError());
  REQUIRE(cudaGetLastError() == cudaErrorMemoryAllocation);
  REQUIRE(cudaGetLastError() == cudaSuccess);
  Show("far too much pinned memory", cudaMallocHost(&memory, std::size_t{1} << 60));
  cudaGetLastError();

  Show("no such device", cudaSetDevice(9999));
  cudaGetLastError();
  CHECK(cudaGetDevice(&device));
  REQUIRE(device == 0);
  int value = 0;
  Show("no such attribute", cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(99999), 0));
  Show("copy to nowhere", cudaMemcpy(nullptr, &value, sizeof value, cudaMemcpyHostToDevice));
  Show("copy in no direction",
       cudaMemcpy(out, &value, sizeof value, static_cast<cudaMemcpyKind>(77)));
  Show("free what was never allocated", cudaFree(&value));
  Show("free the inside", cudaFree(out + 1));
  Show("free host memory that is not pinned", cudaFreeHost(&value));
  Show("no event", cudaEventRecord(nullptr));
  Show("destroy no event", cudaEventDestroy(nullptr));
  Show("flags of an event",
       cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(&memory), 0x4000));
  Show("flags of a stream",
       cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(&memory), 0x4000));
  Show("attributes of no kernel",
       cudaFuncSetAttribute(static_cast<const void*>(&value),
                            cudaFuncAttributeMaxDynamicSharedMemorySize, 4));
  Show("not a symbol", cudaGetSymbolSize(reinterpret_cast<std::size_t*>(&memory), &value));
  cudaGetLastError();

  // A size of zero is valid, and freeing null is not an error.
  memory = out;
  CHECK(cudaMalloc(&memory, 0));
  REQUIRE(memory == nullptr);
  CHECK(cudaFree(nullptr));
  CHECK(cudaFreeHost(nullptr));
  CHECK(cudaMemcpy(out, &value, 0, cudaMemcpyHostToDevice));

  for (cudaError_t error :
       {cudaSuccess, cudaErrorInvalidValue, cudaErrorMemoryAllocation, cudaErrorIllegalAddress,
        cudaErrorNotReady, static_cast<cudaError_t>(12345)}) {
    std::printf("%s: %s\n", cudaGetErrorName(error), cudaGetErrorString(error));
  }
  Touch<<<2, 64>>>(out);
  CHECK(cudaGetLastError());
  REQUIRE(check::Download(out, 1)[0] == 2);
  CHECK(cudaFree(out));
  Show("free it again", cudaFree(out));
  cudaGetLastError();
  return check::Ok();
}
