// What a capture forbids, what the error is, and that the capture is lost or not.
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

// Ends the capture of `stream`, which must give `want`.
void End(cudaStream_t stream, cudaError_t want, const char* what) {
  cudaGraph_t graph = nullptr;
  EXPECT(cudaStreamEndCapture(stream, &graph), want);
  REQUIRE((graph != nullptr) == (want == cudaSuccess));
  if (graph != nullptr) CHECK(cudaGraphDestroy(graph));
  cudaStreamCaptureStatus status;
  CHECK(cudaStreamIsCapturing(stream, &status));
  REQUIRE(status == cudaStreamCaptureStatusNone);
  CHECK(cudaStreamSynchronize(stream));
  std::printf("%s: %s\n", what, cudaGetErrorName(want));
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

  EXPECT(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
         cudaErrorStreamCaptureUnsupported);
  cudaGraph_t none;
  EXPECT(cudaStreamEndCapture(first, &none), cudaErrorIllegalState);

  Begin(first);
  EXPECT(cudaStreamSynchronize(first), cudaErrorStreamCaptureUnsupported);
  cudaStreamCaptureStatus status;
  CHECK(cudaStreamIsCapturing(first, &status));
  REQUIRE(status == cudaStreamCaptureStatusInvalidated);
  End(first, cudaErrorStreamCaptureInvalidated, "waiting for the stream");

  Begin(first);
  EXPECT(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
  End(first, cudaErrorStreamCaptureInvalidated, "allocating in global mode");

  Begin(first, cudaStreamCaptureModeRelaxed);
  CHECK(cudaMalloc(&memory, 16));
  CHECK(cudaFree(memory));
  End(first, cudaSuccess, "allocating in relaxed mode");

  Begin(first);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  REQUIRE(mode == cudaStreamCaptureModeGlobal);
  CHECK(cudaMalloc(&memory, 16));
  CHECK(cudaFree(memory));
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  REQUIRE(mode == cudaStreamCaptureModeRelaxed);
  End(first, cudaSuccess, "allocating in an exchanged mode");

  Begin(first);
  std::thread([&] { EXPECT(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported); }).join();
  End(first, cudaErrorStreamCaptureInvalidated, "another thread allocates, global mode");

  Begin(first, cudaStreamCaptureModeThreadLocal);
  std::thread([&] {
    CHECK(cudaMalloc(&memory, 16));
    CHECK(cudaFree(memory));
    EXPECT(cudaStreamEndCapture(first, &none), cudaErrorStreamCaptureWrongThread);
  }).join();
  End(first, cudaSuccess, "another thread allocates, thread-local mode");

  Begin(first);
  CHECK(cudaEventRecord(event, first));
  EXPECT(cudaEventQuery(event), cudaErrorCapturedEvent);
  End(first, cudaErrorStreamCaptureInvalidated, "asking for a captured event");

  Begin(first);
  EXPECT(cudaStreamWaitEvent(first, outside, 0), cudaErrorStreamCaptureIsolation);
  End(first, cudaErrorStreamCaptureInvalidated, "waiting for an event from outside");

  Begin(first);
  CHECK(cudaEventRecord(event, first));
  CHECK(cudaStreamWaitEvent(second, event, 0));
  Nothing<<<1, 1, 0, second>>>();
  EXPECT(cudaStreamEndCapture(second, &none), cudaErrorStreamCaptureUnmatched);
  End(first, cudaErrorStreamCaptureUnjoined, "a fork without a join");
  CHECK(cudaStreamIsCapturing(second, &status));
  REQUIRE(status == cudaStreamCaptureStatusNone);

  Begin(first);
  Begin(second);
  CHECK(cudaEventRecord(event, first));
  EXPECT(cudaStreamWaitEvent(second, event, 0), cudaErrorStreamCaptureMerge);
  End(first, cudaErrorStreamCaptureInvalidated, "a merge of two captures, one");
  End(second, cudaErrorStreamCaptureInvalidated, "a merge of two captures, the other");

  Begin(blocking);
  EXPECT(cudaStreamIsCapturing(cudaStreamLegacy, &status), cudaErrorStreamCaptureImplicit);
  CHECK(cudaStreamIsCapturing(blocking, &status));
  REQUIRE(status == cudaStreamCaptureStatusActive);
  End(blocking, cudaSuccess, "asking the default stream");

  Begin(blocking);
  EXPECT(cudaEventRecord(outside, cudaStreamLegacy), cudaErrorStreamCaptureImplicit);
  End(blocking, cudaErrorStreamCaptureInvalidated, "using the default stream");

  // After all this everything works again.
  CHECK(cudaEventRecord(event, first));
  CHECK(cudaEventSynchronize(event));
  Nothing<<<1, 1>>>();
  CHECK(cudaDeviceSynchronize());
  return check::Ok();
}
