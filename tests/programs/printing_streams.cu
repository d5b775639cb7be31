// Kernels that print, on several streams: one waits for the host, which launches others meanwhile and
// waits for them. The text of each stream is in its order, and nothing is lost.
#include "check.h"

__global__ void AwaitThenPrint(volatile int* go) {
  while (*go == 0) {
  }
  printf("slow: the host has said so\n");
}

__global__ void Print(const char* label, int i) { printf("%c: %d\n", label[0], i); }

__global__ void PrintMany(int i) { printf("many: %d\n", i); }

int main() {
  cudaStream_t slow, fast;
  CHECK(cudaStreamCreateWithFlags(&slow, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&fast, cudaStreamNonBlocking));
  int* go = nullptr;
  int* device_go = nullptr;
  CHECK(cudaHostAlloc(&go, sizeof(int), cudaHostAllocMapped));
  CHECK(cudaHostGetDevicePointer(&device_go, go, 0));
  *go = 0;
  char* label = nullptr;
  CHECK(cudaMalloc(&label, 2));
  CHECK(cudaMemcpy(label, "f", 2, cudaMemcpyHostToDevice));

  // The driver loads a kernel when it is first used, which may wait for kernels that run.
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, AwaitThenPrint));
  CHECK(cudaFuncGetAttributes(&attributes, Print));
  void* memory = nullptr;
  CHECK(cudaMallocAsync(&memory, 1 << 20, fast));
  CHECK(cudaFreeAsync(memory, fast));
  CHECK(cudaStreamSynchronize(fast));

  AwaitThenPrint<<<1, 1, 0, slow>>>(device_go);
  CHECK(cudaGetLastError());
  for (int i = 0; i < 3; ++i) {
    Print<<<1, 1, 0, fast>>>(label, i);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(fast));
    EXPECT(cudaStreamQuery(slow), cudaErrorNotReady);
  }
  // Calls that need the daemon or the driver, while the first kernel runs.
  CHECK(cudaMallocAsync(&memory, 1 << 20, fast));
  CHECK(cudaFreeAsync(memory, fast));
  CHECK(cudaStreamSynchronize(fast));
  *reinterpret_cast<volatile int*>(go) = 1;
  CHECK(cudaStreamSynchronize(slow));

  // Many launches before one wait.
  for (int i = 0; i < 500; ++i) {
    PrintMany<<<1, 1, 0, fast>>>(i);
    CHECK(cudaGetLastError());
  }
  CHECK(cudaStreamSynchronize(fast));

  // A graph, twice, and an event that stands for it.
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamBeginCapture(fast, cudaStreamCaptureModeGlobal));
  Print<<<1, 1, 0, fast>>>(label, 100);
  Print<<<1, 1, 0, fast>>>(label, 101);
  CHECK(cudaStreamEndCapture(fast, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t done;
  CHECK(cudaEventCreate(&done));
  for (int i = 0; i < 2; ++i) CHECK(cudaGraphLaunch(executable, slow));
  CHECK(cudaEventRecord(done, slow));
  CHECK(cudaEventSynchronize(done));

  CHECK(cudaEventDestroy(done));
  CHECK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFree(label));
  CHECK(cudaFreeHost(go));
  CHECK(cudaStreamDestroy(slow));
  CHECK(cudaStreamDestroy(fast));
  std::printf("ok\n");
  return 0;
}
