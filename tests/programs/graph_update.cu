// Changes of executable graphs: 1,000 launches with parameters that change in between, updates by a
// whole newly captured graph, and the reasons why an update is refused. Also clones.
#include "check.h"

namespace {

constexpr int kCount = 512;

__global__ void AddTo(long long* x, long long value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) x[i] += value * (i + 1);
}
__global__ void SubtractFrom(long long* x, long long value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) x[i] -= value * (i + 1);
}

cudaGraph_t Capture(cudaStream_t stream, long long* x, long long a, long long b, bool subtract,
                    int kernels = 2) {
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  AddTo<<<2, 256, 0, stream>>>(x, a);
  if (kernels > 1) {
    if (subtract) {
      SubtractFrom<<<2, 256, 0, stream>>>(x, b);
    } else {
      AddTo<<<2, 256, 0, stream>>>(x, b);
    }
  } else {
    CHECK(cudaMemsetAsync(x, 0, sizeof(long long), stream));
  }
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  return graph;
}

void Check(const long long* device, long long per_element, const char* what) {
  const std::vector<long long> got = check::Download(device, kCount);
  for (int i = 0; i < kCount; ++i) REQUIRE(got[i] == per_element * (i + 1));
  std::printf("%s: %lld\n", what, per_element);
}

cudaKernelNodeParams ParamsOf(cudaGraphNode_t node) {
  cudaKernelNodeParams params{};
  CHECK(cudaGraphKernelNodeGetParams(node, &params));
  return params;
}

// Does what libraries capture again and again: the same kernel with the same parameters, with other
// parameters, with other dimensions, and another kernel. Copies move in between.
void Children(cudaStream_t stream) {
  long long *x = check::Zeroed<long long>(kCount), *copy = check::Zeroed<long long>(2 * kCount);
  const auto child_of = [&](bool subtract, unsigned blocks, long long value) {
    cudaGraph_t child;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    (subtract ? SubtractFrom : AddTo)<<<blocks, kCount / blocks, 0, stream>>>(x, value);
    CHECK(cudaStreamEndCapture(stream, &child));
    return child;
  };
  cudaGraph_t graph, child = child_of(false, 2, 1);
  cudaGraphNode_t node, copy_node;
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
  CHECK(cudaGraphAddMemcpyNode1D(&copy_node, graph, &node, 1, copy, x, kCount * sizeof(*x),
                                 cudaMemcpyDeviceToDevice));
  CHECK(cudaGraphDestroy(child));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  struct Change {
    bool subtract;
    unsigned blocks;
    long long value;
    int half;  // of `copy`
  };
  constexpr Change kChanges[] = {{false, 2, 1, 0},  {false, 2, 1, 0},   {false, 2, 7, 1},
                                 {false, 4, 7, 1},  {true, 4, 3, 0},    {true, 4, 3, 1},
                                 {false, 1, 50, 1}, {false, 1, 100, 0}, {false, 2, 1, 0}};
  long long sum = 0;
  for (const Change& change : kChanges) {
    child = child_of(change.subtract, change.blocks, change.value);
    CHECK(cudaGraphExecChildGraphNodeSetParams(exec, node, child));
    CHECK(cudaGraphDestroy(child));
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, copy_node, copy + change.half * kCount, x,
                                             kCount * sizeof(*x), cudaMemcpyDeviceToDevice));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    sum += change.subtract ? -change.value : change.value;
    Check(copy + change.half * kCount, sum, "a child");
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFree(x));
  CHECK(cudaFree(copy));
}

}  // namespace

int main() {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  long long* x = check::Zeroed<long long>(kCount);
  cudaGraph_t graph = Capture(stream, x, 1, 2, false);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  Check(x, 3, "first launch");

  // The parameters of one node are changed for each of 1,000 launches, without a wait.
  cudaGraphNode_t nodes[2];
  size_t count = 2;
  CHECK(cudaGraphGetNodes(graph, nodes, &count));
  cudaKernelNodeParams params = ParamsOf(nodes[0]);
  long long value;
  void* arguments[] = {&x, &value};
  params.kernelParams = arguments;
  params.extra = nullptr;
  long long sum = 3;
  for (value = 0; value < 1000; ++value) {
    CHECK(cudaGraphExecKernelNodeSetParams(exec, nodes[0], &params));
    CHECK(cudaGraphLaunch(exec, stream));
    sum += value + 2;
  }
  CHECK(cudaStreamSynchronize(stream));
  Check(x, sum, "after 1,000 launches");

  // The whole graph is captured again, with other values and another kernel.
  for (int round = 0; round < 3; ++round) {
    cudaGraph_t next = Capture(stream, x, 10 + round, 5, round == 1);
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, next, &info));
    REQUIRE(info.result == cudaGraphExecUpdateSuccess);
    CHECK(cudaGraphDestroy(next));
    CHECK(cudaGraphLaunch(exec, stream));
    sum += 10 + round + (round == 1 ? -5 : 5);
  }
  CHECK(cudaStreamSynchronize(stream));
  Check(x, sum, "after 3 updates");

  // Nodes still have the handles of the first graph.
  value = 100;
  CHECK(cudaGraphExecKernelNodeSetParams(exec, nodes[0], &params));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  sum += 105;
  Check(x, sum, "one more change");

  // Updates that are refused. The executable graph does not change.
  cudaGraph_t other_type = Capture(stream, x, 1, 0, false, 1);
  cudaGraphExecUpdateResultInfo info;
  EXPECT(cudaGraphExecUpdate(exec, other_type, &info), cudaErrorGraphExecUpdateFailure);
  std::printf("another type: %d\n", static_cast<int>(info.result));
  cudaGraph_t empty;
  CHECK(cudaGraphCreate(&empty, 0));
  EXPECT(cudaGraphExecUpdate(exec, empty, &info), cudaErrorGraphExecUpdateFailure);
  std::printf("another topology: %d\n", static_cast<int>(info.result));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  sum += 105;
  Check(x, sum, "unchanged");

  // A clone knows the original of each node, and outlives the original graph.
  cudaGraph_t clone;
  cudaGraphNode_t clone_node, original;
  CHECK(cudaGraphClone(&clone, graph));
  CHECK(cudaGraphNodeFindInClone(&clone_node, nodes[0], clone));
  REQUIRE(clone_node != nodes[0]);
  EXPECT(cudaGraphNodeFindInClone(&original, clone_node, graph), cudaErrorInvalidValue);
  value = 1000;
  CHECK(cudaGraphKernelNodeSetParams(clone_node, &params));
  CHECK(cudaGraphDestroy(graph));
  cudaGraphExec_t clone_exec;
  CHECK(cudaGraphInstantiate(&clone_exec, clone, 0));
  CHECK(cudaGraphLaunch(clone_exec, stream));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  sum += 1002 + 105;
  Check(x, sum, "clone and original");

  CHECK(cudaGraphExecDestroy(clone_exec));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(clone));
  CHECK(cudaGraphDestroy(other_type));
  CHECK(cudaGraphDestroy(empty));
  Children(stream);
  return check::Ok();
}
