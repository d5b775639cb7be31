// A program that lets CUPTI watch it, as a framework's profiler does. The program goes on whatever
// CUPTI returns.
#include <cuda_runtime.h>
#include <cupti.h>

#include <cstdio>
#include <cstdlib>

namespace {

__global__ void Add(int* sum) { atomicAdd(sum, 1); }

void GiveBuffer(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *bytes = 1 << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, *bytes));
  *max_records = 0;
}
void TakeBuffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t) { std::free(buffer); }
void OnCall(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

}  // namespace

int main() {
  cuptiActivityRegisterCallbacks(GiveBuffer, TakeBuffer);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME);
  CUpti_SubscriberHandle subscriber = nullptr;
  if (cuptiSubscribe(&subscriber, OnCall, nullptr) == CUPTI_SUCCESS)
    cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API);

  int* device = nullptr;
  int sum = 0;
  cudaMalloc(&device, sizeof(int));
  cudaMemset(device, 0, sizeof(int));
  Add<<<2, 32>>>(device);
  cudaMemcpy(&sum, device, sizeof(int), cudaMemcpyDeviceToHost);
  cuptiActivityFlushAll(0);
  std::printf("%d %s\n", sum, cudaGetErrorName(cudaGetLastError()));
  return 0;
}
