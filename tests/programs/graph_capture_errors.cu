// The calls that a capture forbids, their errors, and whether the capture is lost.
#include <thread>

#include "check.h"

namespace {

__global__ void Nothing() {}

cudaStream_t first, second, blocking;
cudaEvent_t event, outside;

void Begin(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  CHECK(cudaStreamBeginCapture(stream, mode));
  Nothing<<<1, 1, 0, stream>>>();
  CHECK(cudaGetLastError());
}

// Prints the result of the call.
void Show(const char* what, cudaError_t result) {
  std::printf("  %s: %s\n", what, cudaGetErrorName(result));
  std::fflush(stdout);
  cudaGetLastError();
}

// Ends the capture of `stream`.
void End(cudaStream_t stream, const char* what, bool another_captures = false) {
  cudaGraph_t graph = nullptr;
  const cudaError_t result = cudaStreamEndCapture(stream, &graph);
  std::printf("%s: %s\n", what, cudaGetErrorName(result));
  std::fflush(stdout);
  cudaGetLastError();
  REQUIRE((graph != nullptr) == (result == cudaSuccess));
  if (graph != nullptr) CHECK(cudaGraphDestroy(graph));
  cudaStreamCaptureStatus status;
  CHECK(cudaStreamIsCapturing(stream, &status));
  REQUIRE(status == cudaStreamCaptureStatusNone);
  if (another_captures) {
    Show("cudaStreamSynchronize", cudaStreamSynchronize(stream));
  } else {
    CHECK(cudaStreamSynchronize(stream));
  }
}

// A captured memset may name any address. Instantiating the graph fails if there is no memory.
void FillNowhere(void* address, size_t bytes) {
  CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaMemsetAsync(address, 1, bytes, first));
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(first, &graph));
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  REQUIRE(nodes == 1);
  cudaGraphNode_t node;
  CHECK(cudaGraphGetNodes(graph, &node, &nodes));
  cudaMemsetParams fill;
  CHECK(cudaGraphMemsetNodeGetParams(node, &fill));
  REQUIRE(fill.dst == address && fill.width == bytes && fill.value == 1);
  cudaGraphExec_t exec;
  EXPECT(cudaGraphInstantiate(&exec, graph, 0), cudaErrorInvalidValue);
  CHECK(cudaGraphDestroy(graph));
}

}  // namespace

int main() {
  CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  CHECK(cudaStreamCreate(&blocking));
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&outside, cudaEventDisableTiming));
  CHECK(cudaEventRecord(outside, second));
  void* memory = nullptr;
  Nothing<<<1, 1, 0, first>>>();
  CHECK(cudaDeviceSynchronize());

  Show("cudaStreamBeginCapture", cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal));
  cudaGraph_t none;
  Show("cudaStreamEndCapture", cudaStreamEndCapture(first, &none));

  Begin(first);
  Show("cudaStreamSynchronize", cudaStreamSynchronize(first));
  cudaStreamCaptureStatus status;
  CHECK(cudaStreamIsCapturing(first, &status));
  REQUIRE(status == cudaStreamCaptureStatusInvalidated);
  End(first, "waiting for the stream");

  Begin(first);
  Show("cudaMalloc", cudaMalloc(&memory, 16));
  End(first, "allocating in global mode");

  Begin(first, cudaStreamCaptureModeRelaxed);
  CHECK(cudaMalloc(&memory, 16));
  CHECK(cudaFree(memory));
  End(first, "allocating in relaxed mode");

  Begin(first);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  REQUIRE(mode == cudaStreamCaptureModeGlobal);
  CHECK(cudaMalloc(&memory, 16));
  CHECK(cudaFree(memory));
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  REQUIRE(mode == cudaStreamCaptureModeRelaxed);
  End(first, "allocating in an exchanged mode");

  Begin(first);
  std::thread([&] { Show("cudaMalloc", cudaMalloc(&memory, 16)); }).join();
  End(first, "another thread allocates, global mode");

  Begin(first, cudaStreamCaptureModeThreadLocal);
  std::thread([&] {
    CHECK(cudaMalloc(&memory, 16));
    CHECK(cudaFree(memory));
    Show("cudaStreamEndCapture", cudaStreamEndCapture(first, &none));
  }).join();
  End(first, "another thread allocates, thread-local mode");

  Begin(first);
  CHECK(cudaEventRecord(event, first));
  Show("cudaEventQuery", cudaEventQuery(event));
  End(first, "asking for a captured event");

  Begin(first);
  Show("cudaStreamWaitEvent", cudaStreamWaitEvent(first, outside, 0));
  End(first, "waiting for an event from outside");

  Begin(first);
  CHECK(cudaEventRecord(event, first));
  CHECK(cudaStreamWaitEvent(second, event, 0));
  Nothing<<<1, 1, 0, second>>>();
  Show("cudaStreamEndCapture", cudaStreamEndCapture(second, &none));
  End(first, "a fork without a join");
  CHECK(cudaStreamIsCapturing(second, &status));
  REQUIRE(status == cudaStreamCaptureStatusNone);

  Begin(first);
  Begin(second);
  CHECK(cudaEventRecord(event, first));
  Show("cudaStreamWaitEvent", cudaStreamWaitEvent(second, event, 0));
  End(first, "a merge of two captures, one", true);
  End(second, "a merge of two captures, the other");

  Begin(blocking);
  Show("cudaStreamIsCapturing", cudaStreamIsCapturing(cudaStreamLegacy, &status));
  CHECK(cudaStreamIsCapturing(blocking, &status));
  REQUIRE(status == cudaStreamCaptureStatusActive);
  End(blocking, "asking the default stream");

  Begin(blocking);
  Show("cudaEventRecord", cudaEventRecord(outside, cudaStreamLegacy));
  End(blocking, "using the default stream");

  FillNowhere(reinterpret_cast<void*>(0x80), 16384);
  CHECK(cudaMalloc(&memory, 4096));
  FillNowhere(memory, 4097);
  FillNowhere(static_cast<char*>(memory) + 4000, 200);
  CHECK(cudaFree(memory));

  // Everything works again after these errors.
  CHECK(cudaEventRecord(event, first));
  CHECK(cudaEventSynchronize(event));
  Nothing<<<1, 1>>>();
  CHECK(cudaDeviceSynchronize());
  return check::Ok();
}
