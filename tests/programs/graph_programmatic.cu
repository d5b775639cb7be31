// Programmatic dependent launch in a capture. The edges have the meaning of the launches' attribute
// and events. Also capturing into an existing graph, and with dependencies that the program sets.
#include "check.h"

namespace {

constexpr int kCount = 1024;

__global__ void Fill(int* x, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  if (i < kCount) x[i] = value;
}
__global__ void Increase(int* x, int by) {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) x[i] += by;
}

void Print(const char* what, cudaGraph_t graph) {
  cudaGraphNode_t from[8], to[8];
  cudaGraphEdgeData data[8];
  size_t count = 8;
  CHECK(cudaGraphGetEdges(graph, from, to, data, &count));
  std::printf("%s:", what);
  for (size_t i = 0; i < count; ++i)
    std::printf(" (from port %d, type %d)", data[i].from_port, data[i].type);
  std::printf("\n");
}

void Launch(cudaStream_t stream, void (*kernel)(int*, int), int* x, int value, bool early,
            cudaEvent_t event = nullptr) {
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config{};
  config.gridDim = kCount / 256;
  config.blockDim = 256;
  config.stream = stream;
  config.attrs = attributes;
  if (early) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (event != nullptr) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticEvent;
    attributes[config.numAttrs].val.programmaticEvent.event = event;
    attributes[config.numAttrs].val.programmaticEvent.flags = 0;
    attributes[config.numAttrs++].val.programmaticEvent.triggerAtBlockStart = 0;
  }
  CHECK(cudaLaunchKernelEx(&config, kernel, x, value));
}

void Run(cudaGraph_t graph, cudaStream_t stream, const int* x, int want) {
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int round = 0; round < 3; ++round) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  const std::vector<int> got = check::Download(x, kCount);
  for (const int value : got) REQUIRE(value == want);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

}  // namespace

int main() {
  cudaStream_t stream, other;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  int* x = check::Zeroed<int>(kCount);
  cudaGraph_t graph;

  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  Launch(stream, Fill, x, 1, false);
  Launch(stream, Increase, x, 2, true);
  Launch(stream, Increase, x, 3, false);
  CHECK(cudaStreamEndCapture(stream, &graph));
  Print("serialization", graph);
  EXPECT(cudaGraphDestroy(nullptr), cudaErrorInvalidValue);
  Run(graph, stream, x, 6);

  // A kernel behind a memset has nothing to overlap with.
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaMemsetAsync(x, 0, kCount * sizeof(int), stream));
  Launch(stream, Increase, x, 4, true);
  CHECK(cudaStreamEndCapture(stream, &graph));
  Print("behind a memset", graph);
  Run(graph, stream, x, 4);

  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  Launch(stream, Fill, x, 5, false, event);
  CHECK(cudaStreamWaitEvent(other, event, 0));
  Launch(other, Increase, x, 6, false);
  CHECK(cudaEventRecord(event, other));
  CHECK(cudaStreamWaitEvent(stream, event, 0));
  CHECK(cudaStreamEndCapture(stream, &graph));
  Print("programmatic event", graph);
  Run(graph, stream, x, 11);

  // Two captures into one graph, the second behind a node of the first. The program sets the next
  // node's dependencies.
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0,
                                      cudaStreamCaptureModeGlobal));
  Launch(stream, Fill, x, 7, false);
  cudaStreamCaptureStatus status;
  unsigned long long id;
  cudaGraph_t capturing, captured;
  const cudaGraphNode_t* tail;
  const cudaGraphEdgeData* data;
  size_t count;
  CHECK(cudaStreamGetCaptureInfo(stream, &status, &id, &capturing, &tail, &data, &count));
  REQUIRE(status == cudaStreamCaptureStatusActive && capturing == graph && count == 1);
  cudaGraphNode_t fill = tail[0];
  CHECK(cudaStreamEndCapture(stream, &captured));
  REQUIRE(captured == graph);
  CHECK(
      cudaStreamBeginCaptureToGraph(stream, graph, &fill, nullptr, 1, cudaStreamCaptureModeGlobal));
  Launch(stream, Increase, x, 8, false);
  cudaGraphNode_t empty;
  CHECK(cudaStreamGetCaptureInfo(stream, &status, &id, &capturing, &tail, &data, &count));
  CHECK(cudaGraphAddEmptyNode(&empty, graph, tail, count));
  CHECK(cudaStreamUpdateCaptureDependencies(stream, &empty, nullptr, 1,
                                            cudaStreamSetCaptureDependencies));
  Launch(stream, Increase, x, 9, false);
  CHECK(cudaStreamEndCapture(stream, &captured));
  Print("captured to a graph", graph);
  Run(graph, stream, x, 24);
  return check::Ok();
}
