// A program that queues far more work behind a stalled stream than fits anywhere. It waits until the
// stream goes on, and nothing is lost. Another thread lets the stream go on once the program waits. Host
// functions between the work run while the program waits, also if an executable graph was destroyed
// whose copies had memory of their own.
#include <atomic>
#include <chrono>
#include <thread>

#include "gate.h"

constexpr int kWords = 1024;  // a copy of 4 KiB
constexpr int kRows = 16;
constexpr int kCopies = 30000;
constexpr int kCopiesForEachFunction = 16;

// Makes an executable graph that copies ordinary memory, and launches it.
cudaGraphExec_t LaunchedCopy(unsigned* to, const std::vector<unsigned>& from, cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphNode_t node;
  cudaGraphExec_t exec;
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphAddMemcpyNode1D(&node, graph, nullptr, 0, to, from.data(),
                                 from.size() * sizeof(unsigned), cudaMemcpyHostToDevice));
  CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  return exec;
}

int main() {
  std::vector<unsigned> row(kWords), result(kRows * kWords);
  unsigned* device = check::Upload(result);
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const cudaGraphExec_t exec = LaunchedCopy(device, row, stream);
  Gate gate;
  gate.Close(stream);
  CHECK(cudaGraphExecDestroy(exec));
  std::atomic<int> queued{0}, ran{0};
  std::thread opener([&] {
    for (int before = -1; before != queued.load();) {
      before = queued.load();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    gate.Open();
  });
  for (int i = 0; i < kCopies; ++i) {
    for (int k = 0; k < kWords; k += 64) row[k] = i * 31 + k;
    CHECK(cudaMemcpyAsync(device + (i % kRows) * kWords, row.data(), kWords * sizeof(unsigned),
                          cudaMemcpyHostToDevice, stream));
    if (i % kCopiesForEachFunction == 0) {
      CHECK(cudaLaunchHostFunc(
          stream, [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); }, &ran));
    }
    queued = i + 1;
  }
  opener.join();
  CHECK(cudaStreamSynchronize(stream));
  REQUIRE(ran == kCopies / kCopiesForEachFunction);
  for (int i = kCopies - kRows; i < kCopies; ++i) {
    for (int k = 0; k < kWords; k += 64) result[(i % kRows) * kWords + k] = i * 31 + k;
  }
  check::Compare("rows", check::Download(device, kRows * kWords), result);
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(device));
  return check::Ok();
}
