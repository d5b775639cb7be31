// Calls of the driver in host functions: streams and events that are named there work, and calls
// that need a current context or make objects are refused.
#include <future>

#include "check_driver.h"

namespace {

constexpr unsigned kWords = 1024;

CUcontext context = nullptr;
CUstream first = nullptr, second = nullptr;
CUevent before = nullptr, after = nullptr, other = nullptr;
CUdeviceptr memory = 0;
CUgraphExec filling = nullptr;
unsigned* seen = nullptr;  // pinned

// Calls `function` in a host function of the first stream, between the events `before` and `after`,
// and waits for its end. Both events are recorded when it begins.
template <typename Function>
void InHostFunction(Function function) {
  struct Task {
    Function* function;
    std::promise<void> recorded, done;
  } task{&function, {}, {}};
  CHECK_CU(cuEventRecord(before, first));
  CHECK_CU(cuLaunchHostFunc(
      first,
      [](void* data) {
        auto* task = static_cast<Task*>(data);
        task->recorded.get_future().wait();
        (*task->function)();
        task->done.set_value();
      },
      &task));
  CHECK_CU(cuEventRecord(after, first));
  task.recorded.set_value();
  task.done.get_future().wait();
  CHECK_CU(cuStreamSynchronize(first));
}

void ExpectWords(const char* what, unsigned want) {
  CHECK_CU(cuMemcpyDtoH(seen, memory, kWords * sizeof(unsigned)));
  for (unsigned i = 0; i < kWords; ++i) REQUIRE(seen[i] == want);
  std::printf("%s\n", what);
}

void MakeGraph() {
  CUgraph graph = nullptr;
  CHECK_CU(cuStreamBeginCapture(second, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CHECK_CU(cuMemsetD32Async(memory, 33, kWords, second));
  CHECK_CU(cuStreamEndCapture(second, &graph));
  CHECK_CU(cuGraphInstantiate(&filling, graph, 0));
  CHECK_CU(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  check::UsePrimaryContext();
  CHECK_CU(cuCtxGetCurrent(&context));
  CHECK_CU(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  for (CUevent* event : {&before, &after, &other}) CHECK_CU(cuEventCreate(event, CU_EVENT_DEFAULT));
  CHECK_CU(cuMemAlloc(&memory, kWords * sizeof(unsigned)));
  CHECK_CU(cuMemHostAlloc(reinterpret_cast<void**>(&seen), kWords * sizeof(unsigned), 0));
  MakeGraph();

  InHostFunction([] {
    CHECK_CU(cuEventQuery(before));
    CHECK_CU(cuEventSynchronize(before));
    EXPECT_CU(cuEventQuery(after), CUDA_ERROR_NOT_READY);
    EXPECT_CU(cuStreamQuery(first), CUDA_ERROR_NOT_READY);
    CHECK_CU(cuStreamQuery(second));
    unsigned flags = 0;
    CHECK_CU(cuStreamGetFlags(second, &flags));
    REQUIRE(flags == CU_STREAM_NON_BLOCKING);
    CUcontext of_stream = nullptr;
    CHECK_CU(cuStreamGetCtx(second, &of_stream));
    REQUIRE(of_stream == context);
  });
  std::printf("events and streams can be asked\n");

  InHostFunction([] {
    CHECK_CU(cuMemsetD32Async(memory, 11, kWords, second));
    CHECK_CU(cuEventRecord(other, second));
    CHECK_CU(cuEventSynchronize(other));
    CHECK_CU(cuStreamSynchronize(second));
  });
  ExpectWords("memory is set and waited for", 11);

  InHostFunction([] {
    CHECK_CU(cuStreamWriteValue32(second, memory, 22, 0));
    CHECK_CU(cuStreamWaitValue32(second, memory, 22, CU_STREAM_WAIT_VALUE_EQ));
    CHECK_CU(cuGraphLaunch(filling, second));
    CHECK_CU(cuEventRecord(other, second));
    CHECK_CU(cuStreamWaitEvent(first, other, 0));
  });
  ExpectWords("a graph is launched, and the stream waits for it", 33);

  static bool nested = false;
  InHostFunction([] {
    CHECK_CU(cuLaunchHostFunc(
        second, [](void* data) { *static_cast<bool*>(data) = true; }, &nested));
  });
  CHECK_CU(cuStreamSynchronize(second));
  REQUIRE(nested);
  std::printf("a host function enqueues another one\n");

  InHostFunction([] {
    CUgraph graph = nullptr;
    CHECK_CU(cuStreamBeginCapture(second, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CU(cuMemsetD32Async(memory, 44, kWords, second));
    CHECK_CU(cuStreamEndCapture(second, &graph));
    REQUIRE(graph != nullptr);
    CUgraphExec exec = nullptr;
    EXPECT_CU(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_NOT_PERMITTED);
    EXPECT_CU(cuGraphDestroy(graph), CUDA_ERROR_NOT_PERMITTED);
  });
  ExpectWords("a capture executes nothing", 33);

  // The default streams need a current context, which a host function does not have.
  InHostFunction([] {
    for (CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
      EXPECT_CU(cuStreamQuery(stream), CUDA_ERROR_NOT_PERMITTED);
      EXPECT_CU(cuStreamSynchronize(stream), CUDA_ERROR_NOT_PERMITTED);
      EXPECT_CU(cuEventRecord(other, stream), CUDA_ERROR_NOT_PERMITTED);
      EXPECT_CU(cuMemsetD32Async(memory, 55, kWords, stream), CUDA_ERROR_NOT_PERMITTED);
    }
    CUcontext current = nullptr;
    EXPECT_CU(cuCtxGetCurrent(&current), CUDA_ERROR_NOT_PERMITTED);
    EXPECT_CU(cuCtxSetCurrent(context), CUDA_ERROR_NOT_PERMITTED);
    EXPECT_CU(cuCtxSynchronize(), CUDA_ERROR_NOT_PERMITTED);
    EXPECT_CU(cuCtxDestroy(context), CUDA_ERROR_NOT_PERMITTED);
    int number = 0;
    EXPECT_CU(cuDeviceGetCount(&number), CUDA_ERROR_NOT_PERMITTED);
    EXPECT_CU(cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0),
              CUDA_ERROR_NOT_PERMITTED);
    CUdeviceptr made = 0;
    EXPECT_CU(cuMemAlloc(&made, 4096), CUDA_ERROR_NOT_PERMITTED);
    EXPECT_CU(cuMemFree(memory), CUDA_ERROR_NOT_PERMITTED);
    EXPECT_CU(cuMemcpyDtoH(seen, memory, 4), CUDA_ERROR_NOT_PERMITTED);
    EXPECT_CU(cuMemcpyDtoHAsync(seen, memory, 4, second), CUDA_ERROR_NOT_PERMITTED);
    CUstream stream = nullptr;
    EXPECT_CU(cuStreamCreate(&stream, 0), CUDA_ERROR_NOT_PERMITTED);
    CUevent event = nullptr;
    EXPECT_CU(cuEventCreate(&event, 0), CUDA_ERROR_NOT_PERMITTED);
    CUgraph graph = nullptr;
    EXPECT_CU(cuGraphCreate(&graph, 0), CUDA_ERROR_NOT_PERMITTED);
    // The runtime library asks for the current context first.
    std::printf("cudaStreamQuery: %s\n", cudaGetErrorName(cudaStreamQuery(second)));
    std::printf("cudaEventQuery: %s\n", cudaGetErrorName(cudaEventQuery(before)));
    std::printf("cudaMemsetAsync: %s\n",
                cudaGetErrorName(cudaMemsetAsync(reinterpret_cast<void*>(memory), 1, 4, second)));
    void* pointer = nullptr;
    std::printf("cudaMalloc: %s\n", cudaGetErrorName(cudaMalloc(&pointer, 4096)));
    std::printf("cudaGetDevice: %s\n", cudaGetErrorName(cudaGetDevice(&number)));
    std::printf("cudaDeviceSynchronize: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  });
  ExpectWords("what needs a current context is refused", 33);

  CHECK_CU(cuStreamDestroy(first));
  CHECK_CU(cuStreamDestroy(second));
  return check::Ok();
}
