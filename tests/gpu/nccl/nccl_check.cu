// NCCL on several GPUs. The sums are exact, so their order does not matter.
//
//   nccl_check threads [N]     one process, N devices [2], each used by its own thread
//   nccl_check processes [N]   N processes, each with one device
//
// Prints a line for each collective and `ok`. The output is the same natively and through DetShare.
// If a device is missing or NCCL fails, the program says so on stdout and exits with code 1.
// NCCL_DEBUG=WARN prints more.
#include <cuda_runtime.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kCounts[] = {1, 1000, 1 << 16, 5 << 20};
constexpr int kRounds = 5;

[[noreturn]] void Fail(const char* what, const char* why) {
  std::printf("%s: %s\n", what, why);
  std::fflush(stdout);
  std::_Exit(1);
}
void Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) Fail(what, cudaGetErrorString(error));
}
void Check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) Fail(what, ncclGetErrorString(result));
}
#define CHECK(call) Check((call), #call)

// The value of rank `rank` at `i`: a small whole number, so that float holds the sums exactly.
float Value(int rank, size_t i) { return static_cast<float>((i * 7 + rank * 13) % 1021); }

void Expect(const char* what, const std::vector<float>& got, size_t i, float want) {
  if (got[i] == want) return;
  char text[96];
  std::snprintf(text, sizeof(text), "at %zu: got %g, want %g", i, got[i], want);
  Fail(what, text);
}

// One rank's part of all collectives. Rank 0 prints.
void Run(int rank, int ranks, ncclComm_t comm) {
  const auto say = [rank](const char* what) {
    if (rank == 0) std::printf("%s: as it should be\n", what);
  };
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const size_t max = kCounts[3];
  float *from, *to;
  CHECK(cudaMalloc(&from, max * sizeof(float)));
  CHECK(cudaMalloc(&to, max * ranks * sizeof(float)));
  std::vector<float> values(max), got(max * ranks);
  for (size_t i = 0; i < max; ++i) values[i] = Value(rank, i);
  CHECK(cudaMemcpy(from, values.data(), max * sizeof(float), cudaMemcpyHostToDevice));
  const auto fetch = [&](size_t count) {
    CHECK(cudaMemcpyAsync(got.data(), to, count * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
  };

  for (const size_t count : kCounts) {
    for (int round = 0; round < kRounds; ++round)
      CHECK(ncclAllReduce(from, to, count, ncclFloat, ncclSum, comm, stream));
    fetch(count);
    for (size_t i = 0; i < count; ++i) {
      float want = 0;
      for (int r = 0; r < ranks; ++r) want += Value(r, i);
      Expect("all-reduce", got, i, want);
    }
  }
  say("all-reduce");
  for (int root = 0; root < ranks; ++root) {
    CHECK(ncclBroadcast(from, to, max, ncclFloat, root, comm, stream));
    fetch(max);
    for (size_t i = 0; i < max; ++i) Expect("broadcast", got, i, Value(root, i));
  }
  say("broadcast");
  CHECK(ncclAllGather(from, to, max, ncclFloat, comm, stream));
  fetch(max * ranks);
  for (int r = 0; r < ranks; ++r) {
    for (size_t i = 0; i < max; ++i) Expect("all-gather", got, r * max + i, Value(r, i));
  }
  say("all-gather");
  const size_t part = max / ranks;
  CHECK(ncclReduceScatter(from, to, part, ncclFloat, ncclMax, comm, stream));
  fetch(part);
  for (size_t i = 0; i < part; ++i) {
    float want = 0;
    for (int r = 0; r < ranks; ++r) want = std::max(want, Value(r, rank * part + i));
    Expect("reduce-scatter", got, i, want);
  }
  say("reduce-scatter");
  // A ring of sends.
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  CHECK(ncclGroupStart());
  CHECK(ncclSend(from, max, ncclFloat, next, comm, stream));
  CHECK(ncclRecv(to, max, ncclFloat, before, comm, stream));
  CHECK(ncclGroupEnd());
  fetch(max);
  for (size_t i = 0; i < max; ++i) Expect("send and receive", got, i, Value(before, i));
  say("send and receive");

  CHECK(cudaFree(from));
  CHECK(cudaFree(to));
  CHECK(cudaStreamDestroy(stream));
}

void Threads(int ranks) {
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  if (devices < ranks) Fail("threads", "there are fewer devices than that");
  std::vector<ncclComm_t> comms(ranks);
  CHECK(ncclCommInitAll(comms.data(), ranks, nullptr));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      CHECK(cudaSetDevice(rank));
      Run(rank, ranks, comms[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm));
}

void Rank(int rank, int ranks, const ncclUniqueId& id) {
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  if (devices < ranks) Fail("processes", "there are fewer devices than that");
  CHECK(cudaSetDevice(rank));
  ncclComm_t comm;
  CHECK(ncclCommInitRank(&comm, ranks, id, rank));
  Run(rank, ranks, comm);
  CHECK(ncclCommDestroy(comm));
}

void Processes(int ranks) {
  // Before CUDA is used in this process.
  std::vector<pid_t> children;
  std::vector<int> lines;
  for (int rank = 1; rank < ranks; ++rank) {
    int line[2];
    if (pipe(line) != 0) Fail("pipe", std::strerror(errno));
    const pid_t pid = fork();
    if (pid == 0) {
      ncclUniqueId id;
      if (read(line[0], &id, sizeof(id)) != sizeof(id)) std::_Exit(1);
      Rank(rank, ranks, id);
      std::fflush(stdout);
      std::_Exit(0);
    }
    if (pid < 0) Fail("fork", std::strerror(errno));
    children.push_back(pid);
    lines.push_back(line[1]);
  }
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  for (const int line : lines) {
    if (write(line, &id, sizeof(id)) != sizeof(id)) Fail("write", std::strerror(errno));
  }
  Rank(0, ranks, id);
  for (const pid_t child : children) {
    int status = -1;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
      Fail("processes", "another rank failed");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const int ranks = argc > 2 ? std::atoi(argv[2]) : 2;
  if ((mode != "threads" && mode != "processes") || ranks < 1) {
    std::fprintf(stderr, "usage: nccl_check threads|processes [N]\n");
    return 2;
  }
  if (mode == "threads") {
    Threads(ranks);
  } else {
    Processes(ranks);
  }
  std::printf("ok\n");
  return 0;
}
