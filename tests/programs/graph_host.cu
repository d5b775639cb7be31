// The host's part in graphs: host functions that are ordered with the device's work on pinned
// memory, copies of ordinary memory, events that a graph records or waits for, and user objects.
#include <atomic>

#include "check_driver.h"

namespace {

constexpr int kCount = 4096;

__global__ void Square(int* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) x[i] = x[i] * x[i];
}

// The memory that host functions share with copies is pinned. Ordinary memory may be read and
// written at other times than the order of the graph's nodes says.
struct Work {
  int *in = nullptr, *out = nullptr;
  int runs = 0;
  long long sum = 0;
};

// Runs before the graph reads `in`.
void CUDART_CB Prepare(void* data) {
  Work& work = *static_cast<Work*>(data);
  ++work.runs;
  for (int i = 0; i < kCount; ++i) work.in[i] = i % 100 + work.runs;
}

// Runs after the graph has written `out`.
void CUDART_CB Sum(void* data) {
  Work& work = *static_cast<Work*>(data);
  work.sum = 0;
  for (int i = 0; i < kCount; ++i) work.sum += work.out[i];
}

long long Wanted(int run) {
  long long sum = 0;
  for (int i = 0; i < kCount; ++i) sum += (i % 100 + run) * (i % 100 + run);
  return sum;
}

std::atomic<int> g_destroyed{0};
void CUDA_CB CountDestroyed(void* pointer) { g_destroyed += *static_cast<int*>(pointer); }

void Functions(cudaStream_t stream) {
  Work work;
  CHECK(cudaMallocHost(&work.in, kCount * sizeof(int)));
  CHECK(cudaMallocHost(&work.out, kCount * sizeof(int)));
  for (int i = 0; i < kCount; ++i) work.in[i] = work.out[i] = 0;
  int* x = check::Zeroed<int>(kCount);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  CHECK(cudaLaunchHostFunc(stream, Prepare, &work));
  CHECK(cudaMemcpyAsync(x, work.in, kCount * sizeof(int), cudaMemcpyHostToDevice, stream));
  Square<<<kCount / 256, 256, 0, stream>>>(x);
  CHECK(cudaMemcpyAsync(work.out, x, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaLaunchHostFunc(stream, Sum, &work));
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  REQUIRE(work.runs == 0 && work.out[99] == 0);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int run = 1; run <= 3; ++run) {
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    REQUIRE(work.sum == Wanted(run));
  }
  // Several launches without a wait in between.
  for (int run = 4; run <= 50; ++run) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  REQUIRE(work.runs == 50 && work.sum == Wanted(50));
  std::printf("host functions and pinned memory: %d runs, sum %lld\n", work.runs, work.sum);

  // Rows of ordinary memory with a pitch, in both directions.
  constexpr int kRows = 16, kWidth = 24, kPitch = 40;
  std::vector<char> rows(kRows * kPitch, '.'), back(kRows * kPitch, '-');
  for (int y = 0; y < kRows; ++y) std::memset(&rows[y * kPitch], 'a' + y, kWidth);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  CHECK(
      cudaMemcpy2DAsync(x, 64, rows.data(), kPitch, kWidth, kRows, cudaMemcpyHostToDevice, stream));
  CHECK(
      cudaMemcpy2DAsync(back.data(), kPitch, x, 64, kWidth, kRows, cudaMemcpyDeviceToHost, stream));
  cudaGraph_t pitched;
  CHECK(cudaStreamEndCapture(stream, &pitched));
  cudaGraphExec_t pitched_exec;
  CHECK(cudaGraphInstantiate(&pitched_exec, pitched, 0));
  CHECK(cudaGraphLaunch(pitched_exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int y = 0; y < kRows; ++y) {
    for (int i = 0; i < kPitch; ++i) REQUIRE(back[y * kPitch + i] == (i < kWidth ? 'a' + y : '-'));
  }
  std::printf("rows of ordinary memory: %d\n", kRows);
  CHECK(cudaGraphExecDestroy(pitched_exec));
  CHECK(cudaGraphDestroy(pitched));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFree(x));
  CHECK(cudaFreeHost(work.in));
  CHECK(cudaFreeHost(work.out));
}

// One graph records an event. Another graph, on another stream, waits for it.
void Events(cudaStream_t stream) {
  cudaStream_t other;
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  int* x = check::Zeroed<int>(kCount);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  CHECK(cudaMemsetAsync(x, 1, kCount * sizeof(int), stream));
  CHECK(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal));
  cudaGraph_t recording, waiting;
  CHECK(cudaStreamEndCapture(stream, &recording));
  CHECK(cudaStreamBeginCapture(other, cudaStreamCaptureModeRelaxed));
  CHECK(cudaStreamWaitEvent(other, event, cudaEventWaitExternal));
  Square<<<kCount / 256, 256, 0, other>>>(x);
  CHECK(cudaStreamEndCapture(other, &waiting));
  cudaGraphExec_t recorder, waiter;
  CHECK(cudaGraphInstantiate(&recorder, recording, 0));
  CHECK(cudaGraphInstantiate(&waiter, waiting, 0));
  CHECK(cudaEventQuery(event));  // never recorded so far
  for (int round = 0; round < 10; ++round) {
    CHECK(cudaGraphLaunch(recorder, stream));
    CHECK(cudaGraphLaunch(waiter, other));
    CHECK(cudaStreamSynchronize(other));
    CHECK(cudaEventSynchronize(event));
    CHECK(cudaEventQuery(event));
    REQUIRE(check::Download(x, 1)[0] == 0x01010101 * 0x01010101u);
  }
  // Streams can use the same event again.
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaStreamWaitEvent(other, event, 0));
  CHECK(cudaStreamSynchronize(other));
  CHECK(cudaEventDestroy(event));
  CHECK(cudaGraphExecDestroy(recorder));
  CHECK(cudaGraphExecDestroy(waiter));
  CHECK(cudaGraphDestroy(recording));
  CHECK(cudaGraphDestroy(waiting));
  CHECK(cudaStreamDestroy(other));
  CHECK(cudaFree(x));
  std::printf("events between graphs: 10 rounds\n");
}

void UserObjects(cudaStream_t stream) {
  static int one = 1;
  CUuserObject object;
  CHECK_CU(cuUserObjectCreate(&object, &one, CountDestroyed, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CUgraph graph, clone;
  CHECK_CU(cuGraphCreate(&graph, 0));
  CHECK_CU(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CHECK_CU(cuGraphClone(&clone, graph));
  CUgraphExec exec;
  CHECK_CU(cuGraphInstantiate(&exec, clone, 0));
  CHECK_CU(cuGraphDestroy(graph));
  CHECK_CU(cuGraphDestroy(clone));
  CHECK_CU(cuGraphLaunch(exec, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  REQUIRE(g_destroyed == 0);  // the executable graph still has it
  CHECK_CU(cuGraphExecDestroy(exec));
  while (g_destroyed == 0) {
  }
  std::printf("user objects destroyed: %d\n", g_destroyed.load());
}

}  // namespace

int main() {
  check::UsePrimaryContext();
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Functions(stream);
  Events(stream);
  UserObjects(stream);
  return check::Ok();
}
