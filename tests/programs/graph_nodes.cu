// Graphs that are made node by node with the driver API: every type of node, queries of nodes,
// edges, and changes of nodes in the graph and in the executable graph.
#include "check_driver.h"

namespace {

constexpr unsigned kCount = 1024;
constexpr size_t kBytes = kCount * sizeof(unsigned);

__global__ void Mix(unsigned* x, unsigned factor, unsigned add) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) x[i] = x[i] * factor + add;
}

CUcontext context;

CUDA_KERNEL_NODE_PARAMS KernelParams(void** params) {
  cudaFunction_t function;
  CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(Mix)));
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.func = function;
  kernel.gridDimX = kCount / 128;
  kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = 128;
  kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = params;
  return kernel;
}

CUDA_MEMCPY3D Linear(CUmemorytype to_type, void* to, CUmemorytype from_type, void* from) {
  CUDA_MEMCPY3D copy{};
  copy.dstMemoryType = to_type;
  copy.dstHost = to;
  copy.dstDevice = reinterpret_cast<CUdeviceptr>(to);
  copy.srcMemoryType = from_type;
  copy.srcHost = from;
  copy.srcDevice = reinterpret_cast<CUdeviceptr>(from);
  copy.WidthInBytes = kBytes;
  copy.Height = copy.Depth = 1;
  return copy;
}

void CUDA_CB CountCall(void* data) { ++*static_cast<int*>(data); }

unsigned Launch(CUgraphExec exec, CUstream stream, const unsigned* result) {
  CHECK_CU(cuGraphLaunch(exec, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  for (unsigned i = 1; i < kCount; ++i) REQUIRE(result[i] == result[0]);
  return result[0];
}

}  // namespace

int main() {
  check::UsePrimaryContext();
  CHECK_CU(cuCtxGetCurrent(&context));
  CUstream stream;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  unsigned *device, *host;
  CHECK(cudaMalloc(&device, kBytes));
  CHECK(cudaMallocHost(&host, kBytes));
  CUevent begin, end;
  CHECK_CU(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  CHECK_CU(cuEventCreate(&end, CU_EVENT_DEFAULT));
  int calls = 0;

  // record -> memset -> kernel -> (child: kernel) -> copy -> host -> empty -> record
  CUgraph graph, child;
  CHECK_CU(cuGraphCreate(&graph, 0));
  CHECK_CU(cuGraphCreate(&child, 0));
  CUgraphNode nodes[8], inner;
  unsigned factor = 3, add = 4;
  void* params[] = {&device, &factor, &add};
  CUDA_KERNEL_NODE_PARAMS kernel = KernelParams(params);
  CHECK_CU(cuGraphAddKernelNode(&inner, child, nullptr, 0, &kernel));
  CHECK_CU(cuGraphAddEventRecordNode(&nodes[0], graph, nullptr, 0, begin));
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = reinterpret_cast<CUdeviceptr>(device);
  fill.value = 5;
  fill.elementSize = 4;
  fill.width = kCount;
  fill.height = 1;
  CHECK_CU(cuGraphAddMemsetNode(&nodes[1], graph, &nodes[0], 1, &fill, context));
  factor = 2;
  add = 1;
  CHECK_CU(cuGraphAddKernelNode(&nodes[2], graph, &nodes[1], 1, &kernel));
  CHECK_CU(cuGraphAddChildGraphNode(&nodes[3], graph, &nodes[2], 1, child));
  CHECK_CU(cuGraphDestroy(child));  // the node has a copy
  const CUDA_MEMCPY3D fetch =
      Linear(CU_MEMORYTYPE_HOST, host, CU_MEMORYTYPE_DEVICE, reinterpret_cast<void*>(device));
  CHECK_CU(cuGraphAddMemcpyNode(&nodes[4], graph, &nodes[3], 1, &fetch, context));
  const CUDA_HOST_NODE_PARAMS call{CountCall, &calls};
  CHECK_CU(cuGraphAddHostNode(&nodes[5], graph, &nodes[4], 1, &call));
  CHECK_CU(cuGraphAddEmptyNode(&nodes[6], graph, &nodes[5], 1));
  CHECK_CU(cuGraphAddEventRecordNode(&nodes[7], graph, nullptr, 0, end));
  CHECK_CU(cuGraphAddDependencies(graph, &nodes[6], &nodes[7], nullptr, 1));

  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type;
    size_t before = 0, after = 0;
    CHECK_CU(cuGraphNodeGetType(node, &type));
    CHECK_CU(cuGraphNodeGetDependencies(node, nullptr, nullptr, &before));
    CHECK_CU(cuGraphNodeGetDependentNodes(node, nullptr, nullptr, &after));
    std::printf("type %d, %zu before, %zu after\n", static_cast<int>(type), before, after);
  }
  CUgraphNode from[8], to[8];
  size_t edges = 8;
  CHECK_CU(cuGraphGetEdges(graph, from, to, nullptr, &edges));
  std::printf("%zu edges\n", edges);

  // The nodes' own descriptions.
  CUDA_KERNEL_NODE_PARAMS kernel_is{};
  CHECK_CU(cuGraphKernelNodeGetParams(nodes[2], &kernel_is));
  std::printf("kernel: grid %u, block %u, factor %u, add %u\n", kernel_is.gridDimX,
              kernel_is.blockDimX, *static_cast<unsigned*>(kernel_is.kernelParams[1]),
              *static_cast<unsigned*>(kernel_is.kernelParams[2]));
  CUDA_MEMSET_NODE_PARAMS fill_is{};
  CHECK_CU(cuGraphMemsetNodeGetParams(nodes[1], &fill_is));
  std::printf("memset: %u, %zu elements of %u\n", fill_is.value, fill_is.width,
              fill_is.elementSize);
  CUDA_MEMCPY3D copy_is{};
  CHECK_CU(cuGraphMemcpyNodeGetParams(nodes[4], &copy_is));
  REQUIRE(copy_is.dstHost == host && copy_is.WidthInBytes == kBytes);
  CUDA_HOST_NODE_PARAMS host_is{};
  CHECK_CU(cuGraphHostNodeGetParams(nodes[5], &host_is));
  REQUIRE(host_is.fn == CountCall && host_is.userData == &calls);
  CUevent event_is;
  CHECK_CU(cuGraphEventRecordNodeGetEvent(nodes[7], &event_is));
  REQUIRE(event_is == end);
  CUgraph inside;
  size_t inside_count = 1;
  CHECK_CU(cuGraphChildGraphNodeGetGraph(nodes[3], &inside));
  CHECK_CU(cuGraphGetNodes(inside, &inner, &inside_count));

  CUgraphExec exec;
  CHECK_CU(cuGraphInstantiate(&exec, graph, 0));
  std::printf("launch: %u\n", Launch(exec, stream, host));  // (5 * 2 + 1) * 3 + 4
  CHECK_CU(cuEventSynchronize(end));
  float milliseconds;
  CHECK_CU(cuEventElapsedTime(&milliseconds, begin, end));
  REQUIRE(milliseconds >= 0);

  // Changes of the executable graph. The graph does not change.
  factor = 10;
  add = 7;
  CHECK_CU(cuGraphExecKernelNodeSetParams(exec, nodes[2], &kernel));
  std::printf("kernel changed: %u\n", Launch(exec, stream, host));  // (5 * 10 + 7) * 3 + 4
  factor = 1;
  add = 0;
  CHECK_CU(cuGraphExecKernelNodeSetParams(exec, inner, &kernel));
  std::printf("kernel of the child changed: %u\n", Launch(exec, stream, host));  // 57
  fill.value = 6;
  CHECK_CU(cuGraphExecMemsetNodeSetParams(exec, nodes[1], &fill, context));
  std::printf("memset changed: %u\n", Launch(exec, stream, host));  // 67
  CHECK_CU(cuGraphNodeSetEnabled(exec, nodes[2], 0));
  unsigned enabled = 1;
  CHECK_CU(cuGraphNodeGetEnabled(exec, nodes[2], &enabled));
  std::printf("kernel disabled (%u): %u\n", enabled, Launch(exec, stream, host));  // 6
  CHECK_CU(cuGraphNodeSetEnabled(exec, nodes[2], 1));
  std::printf("kernel enabled: %u\n", Launch(exec, stream, host));  // 67
  int other_calls = 0;
  const CUDA_HOST_NODE_PARAMS other{CountCall, &other_calls};
  CHECK_CU(cuGraphExecHostNodeSetParams(exec, nodes[5], &other));
  Launch(exec, stream, host);
  std::printf("host function: %d calls, then %d of another\n", calls, other_calls);
  CHECK_CU(cuGraphKernelNodeGetParams(nodes[2], &kernel_is));
  REQUIRE(*static_cast<unsigned*>(kernel_is.kernelParams[1]) == 2);
  CHECK_CU(cuGraphExecDestroy(exec));

  // Changes of the graph, which also loses a node.
  factor = 100;
  add = 3;
  CHECK_CU(cuGraphKernelNodeSetParams(nodes[2], &kernel));
  CHECK_CU(cuGraphDestroyNode(nodes[3]));
  CHECK_CU(cuGraphAddDependencies(graph, &nodes[2], &nodes[4], nullptr, 1));
  CHECK_CU(cuGraphRemoveDependencies(graph, &nodes[5], &nodes[6], nullptr, 1));
  size_t count = 0, roots = 0;
  CHECK_CU(cuGraphGetNodes(graph, nullptr, &count));
  CHECK_CU(cuGraphGetRootNodes(graph, nullptr, &roots));
  std::printf("%zu nodes, %zu roots\n", count, roots);
  CHECK_CU(cuGraphInstantiate(&exec, graph, 0));
  std::printf("changed graph: %u\n", Launch(exec, stream, host));  // 503

  // A cycle cannot be instantiated.
  CHECK_CU(cuGraphAddDependencies(graph, &nodes[5], &nodes[1], nullptr, 1));
  CUgraphExec none;
  EXPECT_CU(cuGraphInstantiate(&none, graph, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuGraphAddDependencies(graph, &nodes[5], &nodes[1], nullptr, 1),
            CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  EXPECT_CU(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
  return check::Ok();
}
