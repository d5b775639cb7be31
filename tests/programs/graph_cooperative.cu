// Cooperative kernels in graphs: as nodes with the attribute, and captured.
#include <cooperative_groups.h>

#include "check.h"

namespace cg = cooperative_groups;

constexpr unsigned kBlocks = 8;
constexpr unsigned kThreads = 32;
constexpr unsigned kCount = kBlocks * kThreads;

// Every thread adds its number and `by` to a sum. All threads read the sum after a barrier.
__global__ void Share(unsigned* sum, unsigned by, unsigned* out) {
  cg::grid_group grid = cg::this_grid();
  const unsigned i = static_cast<unsigned>(grid.thread_rank());
  atomicAdd(sum, i + by);
  grid.sync();
  out[i] = *sum * 2 + i;
}

unsigned *sum, *out;
cudaStream_t stream;

// Launches twice. The sum grows from launch to launch.
void Run(const char* name, cudaGraph_t graph, unsigned by) {
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaMemset(sum, 0, sizeof(unsigned)));
  CHECK(cudaDeviceSynchronize());  // the stream does not wait for the default stream
  std::vector<unsigned> want(kCount);
  unsigned total = 0;
  for (int round = 0; round < 2; ++round) {
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < kCount; ++i) total += i + by;
  }
  for (unsigned i = 0; i < kCount; ++i) want[i] = total * 2 + i;
  check::Compare(name, check::Download(out, kCount), want);
  CHECK(cudaGraphExecDestroy(exec));
}

int CooperativeOf(cudaGraphNode_t node) {
  cudaKernelNodeAttrValue value{};
  CHECK(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeCooperative, &value));
  return value.cooperative;
}

void Explicit() {
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  unsigned by = 3;
  void* arguments[] = {&sum, &by, &out};
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void*>(Share);
  params.gridDim = kBlocks;
  params.blockDim = kThreads;
  params.kernelParams = arguments;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  REQUIRE(CooperativeOf(node) == 0);
  cudaKernelNodeAttrValue value{};
  value.cooperative = 1;
  CHECK(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeCooperative, &value));
  REQUIRE(CooperativeOf(node) == 1);
  Run("explicit", graph, by);
  by = 5;
  CHECK(cudaGraphKernelNodeSetParams(node, &params));
  Run("changed", graph, by);
  CHECK(cudaGraphDestroy(graph));
}

void Captured() {
  unsigned by = 7;
  void* arguments[] = {&sum, &by, &out};
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaLaunchCooperativeKernel(Share, dim3(kBlocks), dim3(kThreads), arguments, 0, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphNode_t node;
  size_t count = 1;
  CHECK(cudaGraphGetNodes(graph, &node, &count));
  REQUIRE(count == 1);
  REQUIRE(CooperativeOf(node) == 1);
  Run("captured", graph, by);
  CHECK(cudaGraphDestroy(graph));
}

int main() {
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  sum = check::Zeroed<unsigned>(1);
  out = check::Zeroed<unsigned>(kCount);
  Explicit();
  Captured();
  CHECK(cudaFree(sum));
  CHECK(cudaFree(out));
  return check::Ok();
}
