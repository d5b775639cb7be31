// What captures hold: memory that streams of a capture allocate and free, streams and events that
// are made and destroyed meanwhile, captures into graphs that exist, and several captures at once.
// Each case prints the error that ends it, and what the launched graph computed. A case that goes
// wrong does not end the program, so that one run shows them all.
#include <thread>

#include "check_driver.h"

namespace {

constexpr unsigned kStart = 1;

// The result depends on the order of steps.
__global__ void Step(unsigned* x, unsigned add) { *x = *x * 10 + add; }
__global__ void Store(unsigned* x, unsigned value) { *x = value; }
__global__ void Append(unsigned* x, const unsigned* from) { *x = *x * 10 + *from; }
__global__ void Choose(cudaGraphConditionalHandle handle, unsigned value) {
  cudaGraphSetConditional(handle, value);
}

unsigned* x;
CUstream origin;

void AddStep(CUstream stream, unsigned add) {
  Step<<<1, 1, 0, stream>>>(x, add);
  CHECK(cudaGetLastError());
}

CUstream NewStream() {
  CUstream stream;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

CUevent NewEvent() {
  CUevent event;
  CHECK_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  return event;
}

// Lets the next work of `after` wait for the work of `before`.
void Order(CUstream before, CUstream after) {
  const CUevent event = NewEvent();
  CHECK_CU(cuEventRecord(event, before));
  CHECK_CU(cuStreamWaitEvent(after, event, 0));
  CHECK_CU(cuEventDestroy(event));
}

CUdeviceptr Allocate(CUstream stream) {
  CUdeviceptr memory = 0;
  CHECK_CU(cuMemAllocAsync(&memory, sizeof(unsigned), stream));
  REQUIRE(memory != 0);
  return memory;
}

void AddStore(CUstream stream, CUdeviceptr to, unsigned value) {
  Store<<<1, 1, 0, stream>>>(reinterpret_cast<unsigned*>(to), value);
  CHECK(cudaGetLastError());
}

void AddAppend(CUstream stream, CUdeviceptr from) {
  Append<<<1, 1, 0, stream>>>(x, reinterpret_cast<const unsigned*>(from));
  CHECK(cudaGetLastError());
}

int wrong = 0;

void Show(const char* what, CUresult result, CUresult want = CUDA_SUCCESS) {
  std::printf("%s: %s", what, check::Name(result));
  if (result != want) std::printf(", want %s", check::Name(want));
  std::printf("\n");
  std::fflush(stdout);
  wrong += result != want;
}

void Begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
  CHECK_CU(cuStreamBeginCapture(origin, mode));
}

// `origin` does not wait for the legacy stream.
void Start() {
  CHECK_CU(cuMemsetD32(reinterpret_cast<CUdeviceptr>(x), kStart, 1));
  CHECK_CU(cuStreamSynchronize(nullptr));
}

// Launches the graph twice, and shows what a launch computes.
void ShowLaunch(const char* what, CUgraph graph, unsigned want) {
  CUgraphExec exec;
  CHECK_CU(cuGraphInstantiate(&exec, graph, 0));
  unsigned values[2];
  for (unsigned& value : values) {
    Start();
    CHECK_CU(cuGraphLaunch(exec, origin));
    CHECK_CU(cuStreamSynchronize(origin));
    value = check::Download(x, 1)[0];
  }
  std::printf("%s: %u, %u\n", what, values[0], values[1]);
  std::fflush(stdout);
  wrong += values[0] != want || values[1] != want;
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
}

// Ends the capture of `origin`, and runs the graph.
void End(const char* what, unsigned want) {
  CUgraph graph = nullptr;
  const CUresult result = cuStreamEndCapture(origin, &graph);
  REQUIRE((graph != nullptr) == (result == CUDA_SUCCESS));
  Show(what, result);
  if (graph != nullptr) ShowLaunch(what, graph, want);
}

// Ends a capture whose graph is not to run.
void EndUnused(const char* what, CUresult want) {
  CUgraph graph = nullptr;
  const CUresult result = cuStreamEndCapture(origin, &graph);
  REQUIRE((graph != nullptr) == (result == CUDA_SUCCESS));
  Show(what, result, want);
  if (graph != nullptr) CHECK_CU(cuGraphDestroy(graph));
}

// Ends the capture and forgets it, where its own result is not decided.
void Abandon() {
  CUgraph graph = nullptr;
  if (cuStreamEndCapture(origin, &graph) == CUDA_SUCCESS) CHECK_CU(cuGraphDestroy(graph));
}

CUstreamCaptureStatus StatusOf(CUstream stream) {
  CUstreamCaptureStatus status;
  CHECK_CU(cuStreamIsCapturing(stream, &status));
  return status;
}

struct Info {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  std::vector<CUgraphNode> dependencies;
};

Info InfoOf(CUstream stream) {
  Info info;
  const CUgraphNode* nodes = nullptr;
  std::size_t count = 0;
  CHECK_CU(
      cuStreamGetCaptureInfo(stream, &info.status, &info.id, &info.graph, &nodes, nullptr, &count));
  if (info.status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
    info.dependencies.assign(nodes, nodes + count);
  return info;
}

// ---- memory

void FreesInOrigin() {
  Begin();
  const CUdeviceptr memory = Allocate(origin);
  AddStore(origin, memory, 2);
  AddAppend(origin, memory);
  CHECK_CU(cuMemFreeAsync(memory, origin));
  AddStep(origin, 3);
  End("memory of the origin, freed there", 123);
}

void FreesInJoinedStream(bool destroy) {
  const CUstream joined = NewStream();
  Begin();
  const CUdeviceptr memory = Allocate(origin);
  AddStore(origin, memory, 2);
  Order(origin, joined);
  AddAppend(joined, memory);
  CHECK_CU(cuMemFreeAsync(memory, joined));
  Order(joined, origin);
  if (destroy) CHECK_CU(cuStreamDestroy(joined));
  AddStep(origin, 3);
  End(destroy ? "memory of the origin, freed in a stream that is destroyed"
              : "memory of the origin, freed in a joined stream",
      123);
  if (!destroy) CHECK_CU(cuStreamDestroy(joined));
}

void AllocatesInJoinedStream(bool free_there) {
  const CUstream joined = NewStream();
  Begin();
  AddStep(origin, 2);
  Order(origin, joined);
  const CUdeviceptr memory = Allocate(joined);
  AddStore(joined, memory, 3);
  if (free_there) {
    AddAppend(joined, memory);
    CHECK_CU(cuMemFreeAsync(memory, joined));
  }
  Order(joined, origin);
  CHECK_CU(cuStreamDestroy(joined));
  if (!free_there) {
    AddAppend(origin, memory);
    CHECK_CU(cuMemFreeAsync(memory, origin));
  }
  AddStep(origin, 4);
  End(free_there ? "memory of a joined stream, freed there"
                 : "memory of a joined stream, freed in the origin",
      1234);
}

// Two streams of the capture pass memory on: allocated in one, written in another, freed in a third.
void PassesMemoryOn() {
  const CUstream second = NewStream(), third = NewStream();
  Begin();
  AddStep(origin, 2);
  Order(origin, second);
  const CUdeviceptr memory = Allocate(second);
  AddStore(second, memory, 3);
  Order(second, third);
  CHECK_CU(cuStreamDestroy(second));
  AddAppend(third, memory);
  CHECK_CU(cuMemFreeAsync(memory, third));
  Order(third, origin);
  CHECK_CU(cuStreamDestroy(third));
  AddStep(origin, 4);
  End("memory of one stream, freed in another", 1234);
}

// Captures a graph that allocates memory and leaves it to others.
CUgraph CaptureAllocation(CUdeviceptr* memory) {
  Begin();
  *memory = Allocate(origin);
  AddStore(origin, *memory, 2);
  CUgraph graph;
  CHECK_CU(cuStreamEndCapture(origin, &graph));
  return graph;
}

void FreesOutside() {
  CUdeviceptr memory;
  const CUgraph graph = CaptureAllocation(&memory);
  CUgraphExec exec;
  CHECK_CU(cuGraphInstantiate(&exec, graph, 0));
  Start();
  CHECK_CU(cuGraphLaunch(exec, origin));
  AddAppend(origin, memory);
  Show("launching before the memory is freed", cuGraphLaunch(exec, origin),
       CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuMemFreeAsync(memory, origin));
  CHECK_CU(cuGraphLaunch(exec, origin));
  AddAppend(origin, memory);
  CHECK_CU(cuStreamSynchronize(origin));
  Show("freeing it outside", cuMemFree(memory));
  REQUIRE(check::Download(x, 1)[0] == kStart * 100 + 22);

  // A captured free in another graph.
  Begin();
  CHECK_CU(cuMemFreeAsync(memory, origin));
  CUgraph freeing;
  CHECK_CU(cuStreamEndCapture(origin, &freeing));
  CUgraphExec freeing_exec;
  CHECK_CU(cuGraphInstantiate(&freeing_exec, freeing, 0));
  for (int round = 0; round < 3; ++round) {
    CHECK_CU(cuGraphLaunch(exec, origin));
    CHECK_CU(cuGraphLaunch(freeing_exec, origin));
  }
  Show("freeing it in another graph", cuStreamSynchronize(origin));
  // The graph that allocates it can no longer get a node that frees it.
  CUgraphNode node;
  Show("freeing it in its own graph, too", cuGraphAddMemFreeNode(&node, graph, nullptr, 0, memory),
       CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuGraphExecDestroy(freeing_exec));
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(freeing));
  CHECK_CU(cuGraphDestroy(graph));
}

// Memory that a graph has left behind belongs to no graph that is made later.
void FreesAfterGraph() {
  CUdeviceptr memory;
  const CUgraph graph = CaptureAllocation(&memory);
  CUgraphExec exec;
  CHECK_CU(cuGraphInstantiate(&exec, graph, 0));
  CHECK_CU(cuGraphLaunch(exec, origin));
  CHECK_CU(cuStreamSynchronize(origin));
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  CUgraph freeing[4];
  for (CUgraph& other : freeing) {
    CHECK_CU(cuGraphCreate(&other, 0));
    CUgraphNode node;
    Show("freeing it in a later graph", cuGraphAddMemFreeNode(&node, other, nullptr, 0, memory));
  }
  CHECK_CU(cuGraphInstantiate(&exec, freeing[3], 0));
  CHECK_CU(cuGraphLaunch(exec, origin));
  Show("freeing it after its graph", cuStreamSynchronize(origin));
  CHECK_CU(cuGraphExecDestroy(exec));
  for (const CUgraph other : freeing) CHECK_CU(cuGraphDestroy(other));
}

void FreesWrongly() {
  CUdeviceptr ordinary;
  CHECK_CU(cuMemAlloc(&ordinary, 64));
  Begin();
  AddStep(origin, 2);
  Show("freeing memory that no graph allocated", cuMemFreeAsync(ordinary, origin),
       CUDA_ERROR_INVALID_VALUE);
  Abandon();
  CHECK_CU(cuMemFree(ordinary));

  Begin();
  const CUdeviceptr memory = Allocate(origin);
  CHECK_CU(cuMemFreeAsync(memory, origin));
  Show("freeing twice", cuMemFreeAsync(memory, origin), CUDA_ERROR_INVALID_VALUE);
  Abandon();
}

// ---- events

void RecordsAgain() {
  const CUstream joined = NewStream();
  Begin();
  const CUevent event = NewEvent();
  AddStep(origin, 2);
  CHECK_CU(cuEventRecord(event, origin));
  AddStep(origin, 3);
  CHECK_CU(cuEventRecord(event, origin));
  CHECK_CU(cuStreamWaitEvent(joined, event, 0));
  AddStep(joined, 4);
  CHECK_CU(cuEventRecord(event, joined));
  CHECK_CU(cuStreamWaitEvent(origin, event, 0));
  AddStep(origin, 5);
  End("an event that is recorded again", 12345);
  Show("waiting for its end outside", cuStreamWaitEvent(joined, event, 0),
       CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuEventRecord(event, origin));
  Show("after recording it outside", cuStreamWaitEvent(joined, event, 0));
  CHECK_CU(cuEventDestroy(event));
  CHECK_CU(cuStreamDestroy(joined));
}

void WaitsForNothing() {
  Begin();
  const CUevent event = NewEvent();
  AddStep(origin, 2);
  CHECK_CU(cuStreamWaitEvent(origin, event, 0));
  CHECK_CU(cuEventDestroy(event));
  AddStep(origin, 3);
  End("an event that was never recorded", 123);
}

// The place of a destroyed event can be that of a new one.
void ReplacesEvents() {
  const CUstream joined = NewStream();
  Begin();
  AddStep(origin, 2);
  for (unsigned round = 0; round < 3; ++round) {
    Order(origin, joined);
    AddStep(joined, 3 + round);
    Order(joined, origin);
  }
  AddStep(origin, 6);
  End("events that are destroyed at once", 123456);
  CHECK_CU(cuStreamDestroy(joined));
}

void RecordsExternally() {
  const CUevent event = NewEvent();
  Begin();
  AddStep(origin, 2);
  CHECK_CU(cuEventRecordWithFlags(event, origin, CU_EVENT_RECORD_EXTERNAL));
  AddStep(origin, 3);
  End("an event that the graph records", 123);
  Show("waiting for it outside", cuEventSynchronize(event));
  CHECK_CU(cuEventDestroy(event));
}

// ---- streams

void ForgetsToJoin(bool destroy, bool joined_before) {
  const CUstream joined = NewStream();
  Begin();
  AddStep(origin, 2);
  Order(origin, joined);
  AddStep(joined, 3);
  if (joined_before) {
    Order(joined, origin);
    AddStep(joined, 4);
  }
  if (destroy) CHECK_CU(cuStreamDestroy(joined));
  EndUnused(joined_before ? "work after the join, in a stream that is destroyed"
            : destroy     ? "a stream that is destroyed and not joined back"
                          : "a stream that is not joined back",
            CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  if (destroy) return;
  REQUIRE(StatusOf(joined) == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK_CU(cuStreamDestroy(joined));
}

void ReplacesStreams() {
  Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  AddStep(origin, 2);
  for (unsigned round = 0; round < 3; ++round) {
    const CUstream joined = NewStream();
    Order(origin, joined);
    AddStep(joined, 3 + round);
    Order(joined, origin);
    CHECK_CU(cuStreamDestroy(joined));
    REQUIRE(StatusOf(origin) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  }
  AddStep(origin, 6);
  End("streams that are destroyed before the end", 123456);
}

void ReplacesBlockingStream() {
  CUstream joined;
  CHECK_CU(cuStreamCreate(&joined, CU_STREAM_DEFAULT));
  Begin();
  AddStep(origin, 2);
  Order(origin, joined);
  AddStep(joined, 3);
  Order(joined, origin);
  CHECK_CU(cuStreamDestroy(joined));
  End("a blocking stream that is destroyed before the end", 123);
}

void JoinsThroughAnother() {
  const CUstream second = NewStream(), third = NewStream();
  Begin();
  AddStep(origin, 2);
  Order(origin, second);
  AddStep(second, 3);
  Order(second, third);
  AddStep(third, 4);
  Order(third, origin);
  AddStep(origin, 5);
  End("a stream that is joined through another", 12345);
  CHECK_CU(cuStreamDestroy(second));
  CHECK_CU(cuStreamDestroy(third));
}

// ---- captures into graphs that exist

void CapturesToGraph() {
  CUgraph graph;
  CHECK_CU(cuGraphCreate(&graph, 0));
  CHECK_CU(cuStreamBeginCaptureToGraph(origin, graph, nullptr, nullptr, 0,
                                       CU_STREAM_CAPTURE_MODE_GLOBAL));
  AddStep(origin, 2);
  REQUIRE(InfoOf(origin).graph == graph);
  Show("a capture to a graph, without a place for it", cuStreamEndCapture(origin, nullptr));
  REQUIRE(StatusOf(origin) == CU_STREAM_CAPTURE_STATUS_NONE);

  // The next capture goes on behind it.
  CUgraphNode last;
  std::size_t count = 1;
  CHECK_CU(cuGraphGetNodes(graph, &last, &count));
  REQUIRE(count == 1);
  CHECK_CU(
      cuStreamBeginCaptureToGraph(origin, graph, &last, nullptr, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
  AddStep(origin, 3);
  CUgraph same = nullptr;
  CHECK_CU(cuStreamEndCapture(origin, &same));
  REQUIRE(same == graph);
  ShowLaunch("two captures to one graph", graph, 123);
}

// Adds a node that runs its body if `value` is not 0, and captures the body on a stream of its own.
CUgraphNode AddConditional(CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                           CUgraphConditionalHandle handle, unsigned inner_step) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = handle;
  params.conditional.type = CU_GRAPH_COND_TYPE_IF;
  params.conditional.size = 1;
  CHECK_CU(cuCtxGetCurrent(&params.conditional.ctx));
  CUgraphNode node;
  CHECK_CU(cuGraphAddNode(&node, graph, dependencies, nullptr, count, &params));
  const CUstream inner = NewStream(), joined = NewStream();
  CHECK_CU(cuStreamBeginCaptureToGraph(inner, params.conditional.phGraph_out[0], nullptr, nullptr,
                                       0, CU_STREAM_CAPTURE_MODE_RELAXED));
  AddStep(inner, inner_step);
  Order(inner, joined);
  AddStep(joined, inner_step + 1);
  Order(joined, inner);
  CHECK_CU(cuStreamDestroy(joined));
  CHECK_CU(cuStreamEndCapture(inner, nullptr));
  CHECK_CU(cuStreamDestroy(inner));
  return node;
}

// The bodies of conditional nodes are captured while the graph around them is.
void CapturesBodies() {
  Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  AddStep(origin, 2);
  for (const unsigned chosen : {1u, 0u}) {
    CUstreamCaptureStatus status;
    CUgraph graph;
    const CUgraphNode* dependencies;
    std::size_t count;
    CHECK_CU(cuStreamGetCaptureInfo(origin, &status, nullptr, &graph, nullptr, nullptr, nullptr));
    CUgraphConditionalHandle handle;
    CUcontext context;
    CHECK_CU(cuCtxGetCurrent(&context));
    CHECK_CU(cuGraphConditionalHandleCreate(&handle, graph, context, 0, 0));
    Choose<<<1, 1, 0, origin>>>(handle, chosen);
    CHECK(cudaGetLastError());
    CHECK_CU(
        cuStreamGetCaptureInfo(origin, &status, nullptr, &graph, &dependencies, nullptr, &count));
    REQUIRE(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && count == 1);
    CUgraphNode node = AddConditional(graph, dependencies, count, handle, chosen ? 3 : 7);
    CHECK_CU(cuStreamUpdateCaptureDependencies(origin, &node, nullptr, 1,
                                               CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  }
  AddStep(origin, 5);
  End("bodies of conditional nodes", 12345);
}

// ---- queries

void Asks() {
  const CUstream joined = NewStream(), other = NewStream();
  REQUIRE(InfoOf(origin).status == CU_STREAM_CAPTURE_STATUS_NONE);
  Begin();
  CHECK_CU(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
  REQUIRE(InfoOf(origin).dependencies.empty());
  AddStep(origin, 2);
  REQUIRE(InfoOf(origin).dependencies.size() == 1);
  REQUIRE(InfoOf(joined).status == CU_STREAM_CAPTURE_STATUS_NONE);
  Order(origin, joined);
  REQUIRE(InfoOf(joined).status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  REQUIRE(InfoOf(joined).id == InfoOf(origin).id && InfoOf(other).id != InfoOf(origin).id);
  REQUIRE(InfoOf(joined).graph == InfoOf(origin).graph);
  REQUIRE(InfoOf(joined).dependencies == InfoOf(origin).dependencies);
  AddStep(joined, 3);
  REQUIRE(InfoOf(joined).dependencies != InfoOf(origin).dependencies);
  Order(joined, origin);
  CHECK_CU(cuStreamDestroy(joined));
  const CUgraphEdgeData* edges;
  CUstreamCaptureStatus status;
  Show("asking for edges alone",
       cuStreamGetCaptureInfo(origin, &status, nullptr, nullptr, nullptr, &edges, nullptr),
       CUDA_ERROR_INVALID_VALUE);
  CUgraph graph;
  CHECK_CU(cuStreamEndCapture(other, &graph));
  CHECK_CU(cuGraphDestroy(graph));
  CHECK_CU(cuStreamDestroy(other));
  End("a capture that was asked about", 123);
}

void ChangesDependencies() {
  const CUstream joined = NewStream();
  CUgraphNode none = nullptr;
  Show("changing the dependencies of no capture",
       cuStreamUpdateCaptureDependencies(origin, &none, nullptr, 0, 0), CUDA_ERROR_ILLEGAL_STATE);
  Begin();
  AddStep(origin, 2);
  Order(origin, joined);
  // The node in `joined` no longer counts as a fork.
  CUdeviceptr other;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CHECK_CU(cuThreadExchangeStreamCaptureMode(&mode));
  CHECK_CU(cuMemAlloc(&other, 64));
  CHECK_CU(cuThreadExchangeStreamCaptureMode(&mode));
  AddStore(joined, other, 9);
  CHECK_CU(cuStreamUpdateCaptureDependencies(joined, nullptr, nullptr, 0,
                                             CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  REQUIRE(InfoOf(joined).dependencies.empty());
  AddStep(origin, 3);
  End("nodes that are taken from the dependencies", 123);
  CHECK_CU(cuMemFree(other));

  Begin();
  AddStep(origin, 2);
  Order(origin, joined);
  AddStep(joined, 3);
  std::vector<CUgraphNode> nodes = InfoOf(joined).dependencies;
  CHECK_CU(cuStreamUpdateCaptureDependencies(origin, nodes.data(), nullptr, nodes.size(),
                                             CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  REQUIRE(InfoOf(origin).dependencies.size() == 2);
  AddStep(origin, 4);
  End("a join by a change of the dependencies", 1234);
  CHECK_CU(cuStreamDestroy(joined));
}

// What the program does to the graph itself does not count as a fork without a join.
void ChangesGraph() {
  const CUstream joined = NewStream();
  Begin();
  const CUdeviceptr memory = reinterpret_cast<CUdeviceptr>(x);
  AddStep(origin, 2);
  Order(origin, joined);
  CHECK_CU(cuMemsetD32Async(memory, 5, 1, joined));
  CUgraphNode forked = InfoOf(joined).dependencies.at(0);
  Order(joined, origin);
  AddStep(origin, 3);
  CUgraphNode last = InfoOf(origin).dependencies.at(0);
  CHECK_CU(cuGraphRemoveDependencies(InfoOf(origin).graph, &forked, &last, nullptr, 1));
  EndUnused("an edge that is removed from the graph", CUDA_SUCCESS);
  CHECK_CU(cuStreamDestroy(joined));
}

// ---- several captures at once

constexpr unsigned kRounds = 4;

// Captures work of `stream` and of streams that join it, on memory of its own.
void CaptureInThread(CUcontext context, CUstreamCaptureMode mode, CUstream stream, unsigned* to,
                     CUgraph* graph) {
  CHECK_CU(cuCtxSetCurrent(context));
  CUstream others[kRounds];
  for (CUstream& other : others) other = NewStream();
  CHECK_CU(cuStreamBeginCapture(stream, mode));
  for (unsigned round = 0; round < kRounds; ++round) {
    const CUstream joined = others[round];
    Step<<<1, 1, 0, stream>>>(to, 1);
    Order(stream, joined);
    const CUdeviceptr memory = Allocate(joined);
    AddStore(joined, memory, round);
    Append<<<1, 1, 0, joined>>>(to, reinterpret_cast<const unsigned*>(memory));
    Order(joined, stream);
    CHECK_CU(cuStreamDestroy(joined));
    CHECK_CU(cuMemFreeAsync(memory, stream));
  }
  CHECK(cudaGetLastError());
  CHECK_CU(cuStreamEndCapture(stream, graph));
}

void CapturesAtOnce(const char* what, CUstreamCaptureMode mode) {
  constexpr int kThreads = 4;
  CUcontext context;
  CHECK_CU(cuCtxGetCurrent(&context));
  CUstream streams[kThreads];
  CUgraph graphs[kThreads];
  unsigned* values = check::Zeroed<unsigned>(kThreads);
  CHECK_CU(cuCtxSynchronize());
  for (CUstream& stream : streams) stream = NewStream();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back(CaptureInThread, context, mode, streams[i], values + i, &graphs[i]);
  for (std::thread& thread : threads) thread.join();
  unsigned want = 0;
  for (unsigned round = 0; round < kRounds; ++round) want = (want * 10 + 1) * 10 + round;
  for (int i = 0; i < kThreads; ++i) {
    CUgraphExec exec;
    CHECK_CU(cuGraphInstantiate(&exec, graphs[i], 0));
    CHECK_CU(cuGraphLaunch(exec, streams[i]));
    CHECK_CU(cuStreamSynchronize(streams[i]));
    REQUIRE(check::Download(values + i, 1)[0] == want);
    CHECK_CU(cuGraphExecDestroy(exec));
    CHECK_CU(cuGraphDestroy(graphs[i]));
    CHECK_CU(cuStreamDestroy(streams[i]));
  }
  CHECK(cudaFree(values));
  std::printf("%s: CUDA_SUCCESS\n", what);
}

// A relaxed capture may end in another thread.
void EndsInAnotherThread() {
  Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  AddStep(origin, 2);
  CUcontext context;
  CHECK_CU(cuCtxGetCurrent(&context));
  std::thread([context] {
    CHECK_CU(cuCtxSetCurrent(context));
    AddStep(origin, 3);
    End("a relaxed capture that another thread ends", 123);
  }).join();
}

// A capture that was invalidated is over when its origin ends it, for all of its streams.
void Invalidated() {
  const CUstream joined = NewStream();
  Begin();
  AddStep(origin, 2);
  Order(origin, joined);
  AddStep(joined, 3);
  Show("waiting for a joined stream", cuStreamSynchronize(joined),
       CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  REQUIRE(StatusOf(origin) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  REQUIRE(StatusOf(joined) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EndUnused("an invalidated capture", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  REQUIRE(StatusOf(joined) == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK_CU(cuStreamDestroy(joined));
  Begin();
  AddStep(origin, 2);
  End("a capture after it", 12);
}

}  // namespace

int main() {
  check::UsePrimaryContext();
  origin = NewStream();
  x = check::Zeroed<unsigned>(1);
  // Loads the kernels before the first capture.
  AddStep(origin, 1);
  Store<<<1, 1, 0, origin>>>(x, 0);
  Append<<<1, 1, 0, origin>>>(x, x);
  CHECK(cudaDeviceSynchronize());

  FreesInOrigin();
  FreesInJoinedStream(false);
  FreesInJoinedStream(true);
  AllocatesInJoinedStream(true);
  AllocatesInJoinedStream(false);
  PassesMemoryOn();
  FreesOutside();
  FreesAfterGraph();
  FreesWrongly();

  RecordsAgain();
  WaitsForNothing();
  ReplacesEvents();
  RecordsExternally();

  ForgetsToJoin(false, false);
  ForgetsToJoin(true, false);
  ForgetsToJoin(true, true);
  ReplacesStreams();
  ReplacesBlockingStream();
  JoinsThroughAnother();

  CapturesToGraph();
  CapturesBodies();
  Asks();
  ChangesDependencies();
  ChangesGraph();

  CapturesAtOnce("captures at once, global", CU_STREAM_CAPTURE_MODE_GLOBAL);
  CapturesAtOnce("captures at once, thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  CapturesAtOnce("captures at once, relaxed", CU_STREAM_CAPTURE_MODE_RELAXED);
  EndsInAnotherThread();
  Invalidated();
  if (wrong != 0) {
    std::printf("%d cases went wrong\n", wrong);
    return 1;
  }
  return check::Ok();
}
