// Nodes of any type through cuGraphAddNode: memory operations, events, children that are copied or
// moved, changes of a child, and a drawing of the graph.
#include "check_driver.h"

namespace {

constexpr unsigned kCount = 256;

__global__ void AddAll(unsigned* x, unsigned value) { atomicAdd(&x[threadIdx.x], value); }

CUcontext context;
CUstream stream;
unsigned* x;

CUgraphNode AddKernel(CUgraph graph, CUgraphNode before, unsigned value) {
  cudaKernel_t kernel;
  CHECK(cudaGetKernel(&kernel, reinterpret_cast<const void*>(AddAll)));
  void* arguments[] = {&x, &value};
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_KERNEL;
  params.kernel.kern = reinterpret_cast<CUkernel>(kernel);
  params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
  params.kernel.blockDimX = kCount;
  params.kernel.blockDimY = params.kernel.blockDimZ = 1;
  params.kernel.kernelParams = arguments;
  params.kernel.ctx = context;
  CUgraphNode node;
  CHECK_CU(cuGraphAddNode(&node, graph, before == nullptr ? nullptr : &before, nullptr,
                          before == nullptr ? 0 : 1, &params));
  return node;
}

CUgraphNode AddChild(CUgraph graph, CUgraph child, CUgraphChildGraphNodeOwnership ownership) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.graph = child;
  params.graph.ownership = ownership;
  CUgraphNode node;
  CHECK_CU(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
  return node;
}

unsigned Value() { return check::Download(x, 1)[0]; }

void Launch(CUgraphExec exec, const char* what) {
  CHECK_CU(cuGraphLaunch(exec, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  std::printf("%s: %u\n", what, Value());
}

void Children() {
  CUgraph copied, moved, graph;
  CHECK_CU(cuGraphCreate(&copied, 0));
  CHECK_CU(cuGraphCreate(&moved, 0));
  CHECK_CU(cuGraphCreate(&graph, 0));
  AddKernel(copied, AddKernel(copied, nullptr, 1), 10);
  AddKernel(moved, nullptr, 100);
  const CUgraphNode copy = AddChild(graph, copied, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
  const CUgraphNode move = AddChild(graph, moved, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
  CUgraph inside;
  CHECK_CU(cuGraphChildGraphNodeGetGraph(copy, &inside));
  REQUIRE(inside != copied);
  CHECK_CU(cuGraphChildGraphNodeGetGraph(move, &inside));
  REQUIRE(inside == moved);
  EXPECT_CU(cuGraphDestroy(moved), CUDA_ERROR_INVALID_VALUE);
  CUgraphExec exec;
  CHECK_CU(cuGraphInstantiate(&exec, graph, 0));
  Launch(exec, "children");  // 111

  // Replaces the copied child by another child of the same shape.
  CUgraph other;
  CHECK_CU(cuGraphCreate(&other, 0));
  AddKernel(other, AddKernel(other, nullptr, 2), 20);
  CHECK_CU(cuGraphExecChildGraphNodeSetParams(exec, copy, other));
  Launch(exec, "another child");  // + 122
  CHECK_CU(cuGraphDestroy(other));

  // A capturing stream does not accept launches of graphs.
  CUgraph captured = nullptr;
  CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_CU(cuGraphLaunch(exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  cuStreamEndCapture(stream, &captured);
  if (captured != nullptr) CHECK_CU(cuGraphDestroy(captured));
  // The same child twice.
  CUgraph pair;
  CHECK_CU(cuGraphCreate(&pair, 0));
  AddChild(pair, copied, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
  AddChild(pair, copied, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
  CUgraphExec twice;
  CHECK_CU(cuGraphInstantiate(&twice, pair, 0));
  Launch(twice, "twice the same");  // + 22

  const char* path = "graph_generic.dot";
  CHECK_CU(cuGraphDebugDotPrint(pair, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
  FILE* file = std::fopen(path, "r");
  REQUIRE(file != nullptr);
  char line[64];
  REQUIRE(std::fgets(line, sizeof line, file) != nullptr);
  std::printf("picture: %s", line);
  std::fclose(file);
  std::remove(path);
  CHECK_CU(cuGraphExecDestroy(twice));
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(pair));
  CHECK_CU(cuGraphDestroy(graph));
  CHECK_CU(cuGraphDestroy(copied));
}

// The graph waits until the program writes a word, and writes a word itself at the end.
void MemoryOperations() {
  unsigned* words;
  CHECK(cudaMallocHost(&words, 2 * sizeof(unsigned)));
  words[0] = words[1] = 0;
  CUdeviceptr device;
  CHECK_CU(cuMemHostGetDevicePointer(&device, words, 0));
  CUgraph graph;
  CHECK_CU(cuGraphCreate(&graph, 0));
  CUstreamBatchMemOpParams wait{}, write{};
  wait.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  wait.waitValue.address = device;
  wait.waitValue.value = 3;
  wait.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  write.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  write.writeValue.address = device + sizeof(unsigned);
  write.writeValue.value = 77;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  params.memOp.ctx = context;
  params.memOp.count = 1;
  params.memOp.paramArray = &wait;
  CUgraphNode waiting, writing;
  CHECK_CU(cuGraphAddNode(&waiting, graph, nullptr, nullptr, 0, &params));
  const CUgraphNode kernel = AddKernel(graph, waiting, 1000);
  params.memOp.paramArray = &write;
  CHECK_CU(cuGraphAddNode(&writing, graph, &kernel, nullptr, 1, &params));
  CUDA_BATCH_MEM_OP_NODE_PARAMS is{};
  CHECK_CU(cuGraphBatchMemOpNodeGetParams(writing, &is));
  REQUIRE(is.count == 1 && is.paramArray[0].writeValue.value == 77);
  CUgraphExec exec;
  CHECK_CU(cuGraphInstantiate(&exec, graph, 0));
  CHECK_CU(cuGraphLaunch(exec, stream));
  EXPECT_CU(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  REQUIRE(*static_cast<volatile unsigned*>(&words[1]) == 0);
  *static_cast<volatile unsigned*>(&words[0]) = 3;
  CHECK_CU(cuStreamSynchronize(stream));
  std::printf("memory operations: %u, %u\n", words[1], Value());
  write.writeValue.value = 78;
  const CUDA_BATCH_MEM_OP_NODE_PARAMS changed{context, 1, &write, 0};
  CHECK_CU(cuGraphExecBatchMemOpNodeSetParams(exec, writing, &changed));
  CHECK_CU(cuGraphLaunch(exec, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  std::printf("memory operations: %u, %u\n", words[1], Value());

  // The same by capture.
  CUgraph captured;
  words[1] = 0;
  CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CHECK_CU(cuStreamWriteValue32(stream, device + sizeof(unsigned), 79, 0));
  CHECK_CU(cuStreamEndCapture(stream, &captured));
  REQUIRE(words[1] == 0);
  CUgraphExec captured_exec;
  CHECK_CU(cuGraphInstantiate(&captured_exec, captured, 0));
  CHECK_CU(cuGraphLaunch(captured_exec, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  std::printf("captured: %u\n", words[1]);
  CHECK_CU(cuGraphExecDestroy(captured_exec));
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(captured));
  CHECK_CU(cuGraphDestroy(graph));
  CHECK(cudaFreeHost(words));
}

void Events() {
  CUevent event;
  CHECK_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUgraph graph;
  CHECK_CU(cuGraphCreate(&graph, 0));
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  params.eventRecord.event = event;
  const CUgraphNode kernel = AddKernel(graph, nullptr, 1);
  CUgraphNode record, wait;
  CHECK_CU(cuGraphAddNode(&record, graph, &kernel, nullptr, 1, &params));
  params.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  params.eventWait.event = event;
  CHECK_CU(cuGraphAddNode(&wait, graph, &record, nullptr, 1, &params));
  CUgraphExec exec;
  CHECK_CU(cuGraphInstantiate(&exec, graph, 0));
  CHECK_CU(cuGraphLaunch(exec, stream));
  CHECK_CU(cuEventSynchronize(event));
  std::printf("events: %u\n", Value());
  CHECK_CU(cuStreamSynchronize(stream));
  CHECK_CU(cuEventDestroy(event));
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  check::UsePrimaryContext();
  CHECK_CU(cuCtxGetCurrent(&context));
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  x = check::Zeroed<unsigned>(kCount);
  CHECK(cudaDeviceSynchronize());
  Children();
  MemoryOperations();
  Events();
  return check::Ok();
}
