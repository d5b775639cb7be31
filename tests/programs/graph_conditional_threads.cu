// Graphs with conditional nodes that several threads launch at once, each in a stream of its own.
// NVIDIA's driver 580 may end the context then.
#include <thread>

#include "check.h"

namespace {

// The body of a loop: runs until the counter has reached the limit.
__global__ void Loop(cudaGraphConditionalHandle handle, unsigned* counter, unsigned limit) {
  *counter += 1;
  cudaGraphSetConditional(handle, *counter < limit ? 1 : 0);
}

// Returns how many launches of a loop with `limit` rounds counted wrong.
unsigned Run(unsigned limit) {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  unsigned* counter = nullptr;
  CHECK(cudaMalloc(&counter, sizeof(*counter)));
  unsigned wrong = 0;
  for (int round = 0; round < 8; ++round) {
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams loop{};
    loop.type = cudaGraphNodeTypeConditional;
    loop.conditional.handle = handle;
    loop.conditional.type = cudaGraphCondTypeWhile;
    loop.conditional.size = 1;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &loop));
    void* arguments[] = {&handle, &counter, &limit};
    cudaKernelNodeParams kernel{};
    kernel.func = reinterpret_cast<void*>(Loop);
    kernel.gridDim = kernel.blockDim = 1;
    kernel.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&node, loop.conditional.phGraph_out[0], nullptr, 0, &kernel));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int launch = 0; launch < 4; ++launch) {
      unsigned counted = 0;
      CHECK(cudaMemsetAsync(counter, 0, sizeof(*counter), stream));
      CHECK(cudaGraphLaunch(exec, stream));
      CHECK(cudaMemcpyAsync(&counted, counter, sizeof(counted), cudaMemcpyDeviceToHost, stream));
      CHECK(cudaStreamSynchronize(stream));
      wrong += counted != limit;
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
  }
  CHECK(cudaFree(counter));
  CHECK(cudaStreamDestroy(stream));
  return wrong;
}

}  // namespace

int main() {
  constexpr unsigned kThreads = 8;
  unsigned wrong[kThreads];
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i)
    threads.emplace_back([&wrong, i] { wrong[i] = Run(10 + i); });
  for (std::thread& thread : threads) thread.join();
  for (unsigned i = 0; i < kThreads; ++i)
    std::printf("loops of %u rounds: %u wrong\n", 10 + i, wrong[i]);
  return check::Ok();
}
