// Unusual arguments of calls for graphs and captures, where the driver is lenient or strict in a way
// that its documentation does not tell (seen with driver 580 on an H200).
#include "check_driver.h"

CUgraph Make() {
  CUgraph graph = nullptr;
  CHECK_CU(cuGraphCreate(&graph, 0));
  return graph;
}

CUgraphNode AddEmpty(CUgraph graph) {
  CUgraphNode node = nullptr;
  CHECK_CU(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  return node;
}

std::size_t CountEdges(CUgraph graph) {
  std::size_t count = 0;
  CHECK_CU(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  return count;
}

void Edges() {
  const CUgraph graph = Make();
  const CUgraphNode a = AddEmpty(graph), b = AddEmpty(graph), c = AddEmpty(graph);
  // With an edge from a node to itself no edge is added.
  const CUgraphNode self_from[] = {a, b, b}, self_to[] = {b, b, c};
  EXPECT_CU(cuGraphAddDependencies(graph, self_from, self_to, nullptr, 3),
            CUDA_ERROR_INVALID_VALUE);
  REQUIRE(CountEdges(graph) == 0);
  // The edges before another wrong one are added, and removed.
  const CUgraphNode from[] = {a, a, b}, to[] = {b, b, c};
  EXPECT_CU(cuGraphAddDependencies(graph, from, to, nullptr, 3), CUDA_ERROR_INVALID_VALUE);
  REQUIRE(CountEdges(graph) == 1);
  // A list without room is an error.
  CUgraphNode list[1] = {};
  std::size_t count = 0;
  EXPECT_CU(cuGraphNodeGetDependencies(b, list, nullptr, &count), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuGraphRemoveDependencies(graph, from, to, nullptr, 3), CUDA_ERROR_INVALID_VALUE);
  REQUIRE(CountEdges(graph) == 0);
  CHECK_CU(cuGraphDestroy(graph));
}

void Nodes() {
  const CUgraph graph = Make(), child = Make();
  CUevent event = nullptr;
  CHECK_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  AddEmpty(child);
  CUgraphNode node = nullptr;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_EMPTY;
  params.reserved2 = 1;
  EXPECT_CU(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params), CUDA_ERROR_INVALID_VALUE);
  // A child is copied unless it is moved.
  params = {};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.graph = child;
  params.graph.ownership = static_cast<CUgraphChildGraphNodeOwnership>(2);
  CHECK_CU(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
  CUgraph inside = nullptr;
  CHECK_CU(cuGraphChildGraphNodeGetGraph(node, &inside));
  REQUIRE(inside != child);

  // Memory of graphs.
  CUDA_MEM_ALLOC_NODE_PARAMS memory{};
  memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  EXPECT_CU(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &memory), CUDA_ERROR_INVALID_VALUE);

  // A graph that kernels launch names its node that only the host can launch.
  CHECK_CU(cuGraphAddEventRecordNode(&node, child, nullptr, 0, event));
  CUDA_GRAPH_INSTANTIATE_PARAMS made{};
  made.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  CUgraphExec exec = nullptr;
  EXPECT_CU(cuGraphInstantiateWithParams(&exec, child, &made), CUDA_ERROR_INVALID_VALUE);
  REQUIRE(made.result_out == CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED);
  CHECK_CU(cuGraphDestroy(graph));
  CHECK_CU(cuGraphDestroy(child));
  CHECK_CU(cuEventDestroy(event));
}

// The form of an update before CUDA 12.
void OldUpdate() {
  void* entry = nullptr;
  CUdriverProcAddressQueryResult found;
  CHECK_CU(
      cuGetProcAddress("cuGraphExecUpdate", &entry, 10020, CU_GET_PROC_ADDRESS_DEFAULT, &found));
  const auto update =
      reinterpret_cast<CUresult (*)(CUgraphExec, CUgraph, CUgraphNode*, CUgraphExecUpdateResult*)>(
          entry);
  const CUgraph before = Make(), after = Make();
  AddEmpty(before);
  CUgraphExec exec = nullptr;
  CHECK_CU(cuGraphInstantiate(&exec, before, 0));
  CUgraphNode node = nullptr;
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  EXPECT_CU(update(exec, after, &node, &result), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  REQUIRE(result == CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED && node == nullptr);
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(before));
  CHECK_CU(cuGraphDestroy(after));
}

// Graphs are compared from their last end, and the number of edges comes before the type.
void Updates() {
  const CUgraph before = Make(), after = Make();
  const CUgraphNode a = AddEmpty(before), b = AddEmpty(before);
  CHECK_CU(cuGraphAddDependencies(before, &a, &b, nullptr, 1));
  const CUgraphNode c = AddEmpty(after);
  AddEmpty(after);
  CUgraphExec exec = nullptr;
  CHECK_CU(cuGraphInstantiate(&exec, before, 0));
  CUgraphExecUpdateResultInfo info{};
  EXPECT_CU(cuGraphExecUpdate(exec, after, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  REQUIRE(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED && info.errorNode == c);
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphInstantiate(&exec, after, 0));
  EXPECT_CU(cuGraphExecUpdate(exec, before, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  REQUIRE(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED && info.errorNode == nullptr);
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(before));
  CHECK_CU(cuGraphDestroy(after));
}

void Captures() {
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  // Every number is a mode.
  CUstreamCaptureMode mode = static_cast<CUstreamCaptureMode>(7);
  CHECK_CU(cuThreadExchangeStreamCaptureMode(&mode));
  REQUIRE(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK_CU(cuThreadExchangeStreamCaptureMode(&mode));
  REQUIRE(static_cast<int>(mode) == 7);

  // A stream that does not capture has neither an id nor a graph.
  CUstreamCaptureStatus status;
  cuuint64_t id = 5;
  CUgraph graph = nullptr;
  CHECK_CU(cuStreamGetCaptureInfo(stream, &status, &id, &graph, nullptr, nullptr, nullptr));
  REQUIRE(status == CU_STREAM_CAPTURE_STATUS_NONE && id == 5);
  EXPECT_CU(cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0, 2),
            CUDA_ERROR_ILLEGAL_STATE);

  // What is forbidden in a capture stays forbidden when the capture is lost, and a lost capture
  // comes before a wrong event.
  CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CU(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_CU(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK_CU(cuStreamGetCaptureInfo(stream, &status, &id, &graph, nullptr, nullptr, nullptr));
  REQUIRE(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED && id == 5);
  EXPECT_CU(cuStreamWaitEvent(stream, nullptr, 0), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_CU(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK_CU(cuStreamDestroy(stream));
}

int main() {
  check::UsePrimaryContext();
  Edges();
  Nodes();
  OldUpdate();
  Updates();
  Captures();
  CHECK_CU(cuDevicePrimaryCtxRelease(0));
  return check::Ok();
}
