// Reads results back in all ways that digests know. An argument is the number of the way in which
// one value differs. "pause" as the last argument lets time pass between calls.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                  \
  do {                                                               \
    const cudaError_t result = (call);                               \
    if (result != cudaSuccess) {                                     \
      std::printf("%d: %s\n", __LINE__, cudaGetErrorString(result)); \
      std::exit(1);                                                  \
    }                                                                \
  } while (false)

constexpr int kCount = 3000;

__global__ void Fill(unsigned* values, unsigned seed, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = seed * 2654435761u + i;
}
__global__ void Differ(unsigned* values, unsigned seed, int count, int at) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = seed * 2654435761u + i + (i == at ? 1 : 0);
}

int g_differ = 0, g_way = 0;
bool g_pause = false;

void Produce(unsigned* values, cudaStream_t stream) {
  ++g_way;
  if (g_way == g_differ) {
    Differ<<<(kCount + 127) / 128, 128, 0, stream>>>(values, g_way, kCount, 1234);
  } else {
    Fill<<<(kCount + 127) / 128, 128, 0, stream>>>(values, g_way, kCount);
  }
  CHECK(cudaGetLastError());
  if (g_pause) usleep(20'000);
}

int main(int argc, char** argv) {
  if (argc > 1) g_differ = std::atoi(argv[1]);
  g_pause = argc > 2 && std::strcmp(argv[2], "pause") == 0;
  constexpr size_t kBytes = kCount * sizeof(unsigned);
  unsigned* values;
  CHECK(cudaMalloc(&values, kBytes));
  std::vector<unsigned> ordinary(kCount);
  unsigned *pinned, *more;
  CHECK(cudaMallocHost(&pinned, kBytes));
  CHECK(cudaMallocHost(&more, kBytes));
  cudaStream_t one, two;
  CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
  cudaEvent_t event;
  CHECK(cudaEventCreate(&event));

  // 1: ordinary memory.
  Produce(values, nullptr);
  CHECK(cudaMemcpy(ordinary.data(), values, kBytes, cudaMemcpyDeviceToHost));
  // 2: rows of ordinary memory.
  Produce(values, nullptr);
  CHECK(cudaMemcpy2D(ordinary.data(), 100, values, 80, 50, 100, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(ordinary.data(), values, kBytes, cudaMemcpyDeviceToHost));
  // 3: pinned memory, with a synchronous copy.
  Produce(values, nullptr);
  CHECK(cudaMemcpy(pinned, values, kBytes, cudaMemcpyDeviceToHost));
  // 4, 5: pinned memory on two streams. It is reused after each wait.
  for (int way = 4; way <= 5; ++way) {
    Produce(values, one);
    CHECK(cudaMemcpyAsync(pinned, values, kBytes, cudaMemcpyDeviceToHost, one));
    CHECK(cudaEventRecord(event, one));
    CHECK(cudaStreamWaitEvent(two, event, 0));
    CHECK(cudaMemcpyAsync(more, values, kBytes, cudaMemcpyDeviceToHost, two));
    CHECK(cudaStreamSynchronize(two));
    std::memset(pinned, 0, kBytes);
    std::memset(more, 0, kBytes);
  }
  // 6: behind an event that the program polls.
  Produce(values, one);
  CHECK(cudaMemcpyAsync(pinned, values, kBytes, cudaMemcpyDeviceToHost, one));
  CHECK(cudaEventRecord(event, one));
  while (cudaEventQuery(event) == cudaErrorNotReady) {
  }
  std::memset(pinned, 0, kBytes);
  // 7: a host function sees it.
  Produce(values, one);
  CHECK(cudaMemcpyAsync(pinned, values, kBytes, cudaMemcpyDeviceToHost, one));
  CHECK(cudaLaunchHostFunc(
      one, [](void* memory) { std::memset(memory, 0, kBytes); }, pinned));
  CHECK(cudaStreamSynchronize(one));
  // 8: nodes of a graph.
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
  Produce(values, one);
  CHECK(cudaMemcpyAsync(pinned, values, kBytes, cudaMemcpyDeviceToHost, one));
  CHECK(cudaMemcpyAsync(ordinary.data(), values, kBytes, cudaMemcpyDeviceToHost, one));
  CHECK(cudaStreamEndCapture(one, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, one));
  CHECK(cudaStreamSynchronize(one));
  // 9: the program does not wait for it.
  Produce(values, one);
  CHECK(cudaMemcpyAsync(pinned, values, kBytes, cudaMemcpyDeviceToHost, one));
  std::puts("ok");
  return 0;
}
