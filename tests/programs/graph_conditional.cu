// Conditional nodes: bodies that run, do not run, or run several times. Kernels of the graph set
// the values, or the handle has a default.
#include "check.h"

namespace {

__global__ void SetTo(cudaGraphConditionalHandle handle, const unsigned* value) {
  cudaGraphSetConditional(handle, *value);
}
__global__ void Count(unsigned* counter, unsigned by) { *counter += by; }
// The body of a loop: runs until the counter has reached the limit.
__global__ void Loop(cudaGraphConditionalHandle handle, unsigned* counter, unsigned limit) {
  *counter += 1;
  cudaGraphSetConditional(handle, *counter < limit ? 1 : 0);
}

cudaStream_t stream;
unsigned *counter, *choice;

// Adds a conditional node behind `before` (null: at the root) and returns its bodies.
cudaGraphNode_t AddConditional(cudaGraph_t graph, cudaGraphNode_t before,
                               cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type,
                               unsigned size, std::vector<cudaGraph_t>* bodies) {
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = size;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddNode(&node, graph, before == nullptr ? nullptr : &before, nullptr,
                         before == nullptr ? 0 : 1, &params));
  bodies->assign(params.conditional.phGraph_out, params.conditional.phGraph_out + size);
  return node;
}

cudaGraphNode_t AddKernel(cudaGraph_t graph, void* function, void** arguments) {
  cudaKernelNodeParams params{};
  params.func = function;
  params.gridDim = params.blockDim = 1;
  params.kernelParams = arguments;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  return node;
}

void AddCount(cudaGraph_t graph, unsigned by) {
  void* arguments[] = {&counter, &by};
  AddKernel(graph, reinterpret_cast<void*>(Count), arguments);
}

cudaGraphNode_t AddSet(cudaGraph_t graph, cudaGraphConditionalHandle handle) {
  void* arguments[] = {&handle, &choice};
  return AddKernel(graph, reinterpret_cast<void*>(SetTo), arguments);
}

unsigned RunWith(cudaGraphExec_t exec, unsigned value) {
  const unsigned zero = 0;
  CHECK(cudaMemcpy(counter, &zero, sizeof(zero), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(choice, &value, sizeof(value), cudaMemcpyHostToDevice));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  return check::Download(counter, 1)[0];
}

cudaGraphExec_t Instantiate(cudaGraph_t graph) {
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  return exec;
}

void If() {
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle;
  CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
  std::vector<cudaGraph_t> bodies;
  AddConditional(graph, AddSet(graph, handle), handle, cudaGraphCondTypeIf, 2, &bodies);
  AddCount(bodies[0], 10);
  AddCount(bodies[1], 20);
  const cudaGraphExec_t exec = Instantiate(graph);
  std::printf("if: %u, else: %u, if: %u\n", RunWith(exec, 1), RunWith(exec, 0), RunWith(exec, 7));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

void Switch() {
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle;
  CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
  std::vector<cudaGraph_t> bodies;
  AddConditional(graph, AddSet(graph, handle), handle, cudaGraphCondTypeSwitch, 3, &bodies);
  for (unsigned i = 0; i < 3; ++i) AddCount(bodies[i], i + 1);
  const cudaGraphExec_t exec = Instantiate(graph);
  for (unsigned value = 0; value < 5; ++value)
    std::printf("switch %u: %u\n", value, RunWith(exec, value));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

// The value is 1 at every launch, and the body sets it to 0 at the end. The body is captured.
void While() {
  cudaGraph_t graph, captured;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle;
  CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
  std::vector<cudaGraph_t> bodies;
  AddConditional(graph, nullptr, handle, cudaGraphCondTypeWhile, 1, &bodies);
  CHECK(cudaStreamBeginCaptureToGraph(stream, bodies[0], nullptr, nullptr, 0,
                                      cudaStreamCaptureModeGlobal));
  Loop<<<1, 1, 0, stream>>>(handle, counter, 25);
  CHECK(cudaStreamEndCapture(stream, &captured));
  REQUIRE(captured == bodies[0]);
  const cudaGraphExec_t exec = Instantiate(graph);
  for (int round = 0; round < 3; ++round) std::printf("while: %u\n", RunWith(exec, 0));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

// A loop whose body has a choice, with two handles. The graph is instantiated again after the first
// one is destroyed.
void Nested() {
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle again, chosen;
  CHECK(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
  CHECK(cudaGraphConditionalHandleCreate(&chosen, graph, 0, 0));
  std::vector<cudaGraph_t> loop, choices;
  AddConditional(graph, nullptr, again, cudaGraphCondTypeWhile, 1, &loop);
  const cudaGraphNode_t set = AddSet(loop[0], chosen);
  const cudaGraphNode_t choose =
      AddConditional(loop[0], set, chosen, cudaGraphCondTypeSwitch, 2, &choices);
  AddCount(choices[0], 3);
  AddCount(choices[1], 5);
  unsigned limit = 10;
  void* arguments[] = {&again, &counter, &limit};
  const cudaGraphNode_t last = AddKernel(loop[0], reinterpret_cast<void*>(Loop), arguments);
  CHECK(cudaGraphAddDependencies(loop[0], &choose, &last, nullptr, 1));
  for (int round = 0; round < 2; ++round) {
    const cudaGraphExec_t exec = Instantiate(graph);
    std::printf("nested: %u, %u, %u\n", RunWith(exec, 0), RunWith(exec, 1), RunWith(exec, 2));
    CHECK(cudaGraphExecDestroy(exec));
  }
  CHECK(cudaGraphDestroy(graph));
}

void Rules() {
  cudaGraph_t graph, clone;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle;
  CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphExec_t exec;
  REQUIRE(cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess);  // no node uses the handle
  cudaGetLastError();
  std::vector<cudaGraph_t> bodies;
  AddConditional(graph, nullptr, handle, cudaGraphCondTypeIf, 1, &bodies);
  REQUIRE(cudaGraphClone(&clone, graph) != cudaSuccess);
  cudaGetLastError();
  CHECK(cudaGraphDestroy(graph));
  std::printf("rules: kept\n");
}

}  // namespace

int main() {
  CHECK(cudaStreamCreate(&stream));
  counter = check::Zeroed<unsigned>(1);
  choice = check::Zeroed<unsigned>(1);
  If();
  Switch();
  While();
  Nested();
  Rules();
  return check::Ok();
}
