// Stream capture. Work of several streams, forked and joined by events, becomes one graph, which is
// launched many times. Nothing runs during the capture.
#include "check.h"

namespace {

constexpr int kCount = 1 << 12;

__global__ void Add(int* to, const int* from, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) to[i] += from[i] + value;
}

__global__ void Join(int* to, const int* a, const int* b) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) to[i] = a[i] * 2 + b[i];
}

struct Buffers {
  int *in, *a, *b, *out, *host;
};

// origin: in -> a; fork: in -> b; joined: out = 2a + b, fetched.
cudaGraph_t Capture(cudaStream_t origin, cudaStream_t fork, cudaStreamCaptureMode mode,
                    const Buffers& at) {
  const dim3 blocks(kCount / 256), threads(256);
  cudaEvent_t forked, joined;
  CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  CHECK(cudaStreamBeginCapture(origin, mode));
  CHECK(cudaMemsetAsync(at.a, 0, kCount * sizeof(int), origin));
  CHECK(cudaEventRecord(forked, origin));
  CHECK(cudaStreamWaitEvent(fork, forked, 0));
  cudaStreamCaptureStatus status;
  CHECK(cudaStreamIsCapturing(fork, &status));
  REQUIRE(status == cudaStreamCaptureStatusActive);
  CHECK(cudaMemcpyAsync(at.b, at.in, kCount * sizeof(int), cudaMemcpyDeviceToDevice, fork));
  Add<<<blocks, threads, 0, fork>>>(at.b, at.in, 5);
  Add<<<blocks, threads, 0, origin>>>(at.a, at.in, 7);
  CHECK(cudaEventRecord(joined, fork));
  CHECK(cudaStreamWaitEvent(origin, joined, 0));
  Join<<<blocks, threads, 0, origin>>>(at.out, at.a, at.b);
  CHECK(cudaMemcpyAsync(at.host, at.out, kCount * sizeof(int), cudaMemcpyDeviceToHost, origin));
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(origin, &graph));
  CHECK(cudaStreamIsCapturing(fork, &status));
  REQUIRE(status == cudaStreamCaptureStatusNone);
  CHECK(cudaEventDestroy(forked));
  CHECK(cudaEventDestroy(joined));
  return graph;
}

void Run(cudaStreamCaptureMode mode, const char* name) {
  Buffers at;
  CHECK(cudaMalloc(&at.in, kCount * sizeof(int)));
  CHECK(cudaMalloc(&at.a, kCount * sizeof(int)));
  CHECK(cudaMalloc(&at.b, kCount * sizeof(int)));
  CHECK(cudaMalloc(&at.out, kCount * sizeof(int)));
  CHECK(cudaMallocHost(&at.host, kCount * sizeof(int)));
  std::memset(at.host, 0, kCount * sizeof(int));
  cudaStream_t origin, fork;
  CHECK(cudaStreamCreateWithFlags(&origin, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&fork, cudaStreamNonBlocking));
  const cudaGraph_t graph = Capture(origin, fork, mode, at);
  CHECK(cudaStreamSynchronize(origin));
  REQUIRE(at.host[17] == 0);  // nothing has run
  size_t nodes = 0, edges = 0, roots = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  CHECK(cudaGraphGetRootNodes(graph, nullptr, &roots));
  std::printf("%s: %zu nodes, %zu edges, %zu roots\n", name, nodes, edges, roots);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphDestroy(graph));
  std::vector<int> in(kCount);
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < kCount; ++i) in[i] = i * 3 + round;
    CHECK(cudaMemcpy(at.in, in.data(), kCount * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaGraphLaunch(exec, origin));
    CHECK(cudaStreamSynchronize(origin));
    for (int i = 0; i < kCount; ++i) REQUIRE(at.host[i] == 2 * (in[i] + 7) + (2 * in[i] + 5));
  }
  std::printf("%s: 5 launches give what the CPU does\n", name);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaStreamDestroy(origin));
  CHECK(cudaStreamDestroy(fork));
  CHECK(cudaFreeHost(at.host));
  for (int* memory : {at.in, at.a, at.b, at.out}) CHECK(cudaFree(memory));
}

}  // namespace

int main() {
  Run(cudaStreamCaptureModeGlobal, "global");
  Run(cudaStreamCaptureModeThreadLocal, "thread-local");
  Run(cudaStreamCaptureModeRelaxed, "relaxed");
  return check::Ok();
}
