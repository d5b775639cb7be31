// One process of a soak that behaves as the processes of a serving stack do: an unmodified CUDA
// program that works until SIGTERM. It prints "ready" once it works.
//
//   serving_worker serve SEED WEIGHTS_MIB HOST_MIB SHAPES
//       A server of two ranks, a process each. A request copies a token to the device, replays the
//       CUDA graph of one of SHAPES shapes, adds the results of both ranks through IPC memory and
//       IPC events, and copies the sum back. The server compares every sum with the CPU's. After
//       every 1,000 requests it sleeps and wakes: it registers HOST_MIB of host memory, copies
//       WEIGHTS_MIB of weights there, unmaps them, gives their physical memory back, takes
//       physical memory again, restores the weights, opens the other rank's memory again, and
//       captures some graphs anew. Each second it prints "latency P50 P90 P99 REQUESTS" (us).
//   serving_worker fork_server SEED
//       A process without CUDA that forks a child each 200 ms. The child serves one request.
//   serving_worker poll
//       Asks NVML for the state of all devices, ten times a second.
//
// Exits with 1 when a call fails, and with 3 when a result differs from the CPU's.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define CHECK(call)                                                                       \
  do {                                                                                    \
    const cudaError_t result = (call);                                                    \
    if (result != cudaSuccess) {                                                          \
      std::fprintf(stderr, "serving: line %d: %s\n", __LINE__, cudaGetErrorName(result)); \
      std::exit(1);                                                                       \
    }                                                                                     \
  } while (false)

#define CHECK_CU(call)                                                                  \
  do {                                                                                  \
    const CUresult result = (call);                                                     \
    if (result != CUDA_SUCCESS) {                                                       \
      std::fprintf(stderr, "serving: line %d: CUDA error %d\n", __LINE__, int(result)); \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (false)

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kThreads = 128;
constexpr uint32_t kWordsOfShape = 1024;  // a shape reads so many more words than the one before
constexpr int kRequestsAwake = 1000;
constexpr int kGraphsCapturedAnew = 8;

volatile sig_atomic_t g_stop = 0;

__host__ __device__ uint32_t Weight(uint32_t i) { return (i + 1) * 2654435761u; }

__host__ __device__ uint32_t Mix(uint32_t weight, uint32_t i, uint32_t state) {
  const uint32_t x = (weight ^ state) * 1664525u + i;
  return x ^ (x >> 15);
}

__global__ void Fill(uint32_t* weights, uint32_t count) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    weights[i] = Weight(i);
}

// The sum of integers does not depend on the order of the blocks.
__global__ void Layer(const uint32_t* weights, uint32_t count, const uint32_t* state,
                      uint32_t* next) {
  uint32_t sum = 0;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    sum += Mix(weights[i], i, *state);
  atomicAdd(next, sum);
}

__global__ void Add(const uint32_t* a, const uint32_t* b, uint32_t* sum) { *sum = *a + *b; }

uint32_t WordsOf(uint32_t shape) { return (shape + 1) * kWordsOfShape; }
uint32_t LayersOf(uint32_t shape) { return 1 + shape % 4; }

uint32_t OnCpu(uint32_t shape, uint32_t token) {
  uint32_t state = token;
  for (uint32_t layer = 0; layer < LayersOf(shape); ++layer) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < WordsOf(shape); ++i) next += Mix(Weight(i), i, state);
    state = next;
  }
  return state;
}

void Ready() {
  std::printf("ready\n");
  std::fflush(stdout);
}

void StopAtSigterm() {
  signal(SIGTERM, [](int) { g_stop = 1; });
}

template <typename Function>
Function* Driver(const char* name) {
  void* function = nullptr;
  CHECK(cudaGetDriverEntryPointByVersion(name, &function, CUDART_VERSION, cudaEnableDefault));
  if (function == nullptr) std::exit(1);
  return reinterpret_cast<Function*>(function);
}

// Weights at an address that stays while their physical memory comes and goes.
class Weights {
 public:
  explicit Weights(size_t mib) {
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    size_t unit = 0;
    CHECK_CU(Driver<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity")(
        &unit, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    bytes_ = ((mib << 20) + unit - 1) / unit * unit;
    CHECK_CU(
        Driver<decltype(cuMemAddressReserve)>("cuMemAddressReserve")(&address_, bytes_, 0, 0, 0));
    Take();
    Fill<<<256, kThreads>>>(words(), static_cast<uint32_t>(bytes_ / sizeof(uint32_t)));
    CHECK(cudaDeviceSynchronize());
  }

  void Take() {
    static const auto create = Driver<decltype(cuMemCreate)>("cuMemCreate");
    static const auto map = Driver<decltype(cuMemMap)>("cuMemMap");
    static const auto set_access = Driver<decltype(cuMemSetAccess)>("cuMemSetAccess");
    CHECK_CU(create(&memory_, bytes_, &properties_, 0));
    CHECK_CU(map(address_, bytes_, 0, memory_, 0));
    const CUmemAccessDesc access{properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_CU(set_access(address_, bytes_, &access, 1));
  }

  void GiveBack() {
    static const auto unmap = Driver<decltype(cuMemUnmap)>("cuMemUnmap");
    static const auto release = Driver<decltype(cuMemRelease)>("cuMemRelease");
    CHECK_CU(unmap(address_, bytes_));
    CHECK_CU(release(memory_));
  }

  uint32_t* words() const { return reinterpret_cast<uint32_t*>(address_); }
  size_t bytes() const { return bytes_; }

 private:
  CUmemAllocationProp properties_{};
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle memory_ = 0;
  size_t bytes_ = 0;
};

// What the ranks tell each other through a socket.
struct Handles {
  cudaIpcMemHandle_t result;
  cudaIpcEventHandle_t written, read;
};

class Rank {
 public:
  Rank(int socket, size_t weights_mib, size_t host_mib, uint32_t shapes)
      : socket_(socket), weights_(weights_mib), graphs_(shapes) {
    host_bytes_ = std::max(host_mib << 20, weights_.bytes());
    host_ = static_cast<char*>(
        mmap(nullptr, host_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (host_ == MAP_FAILED) std::exit(1);
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    constexpr unsigned kFlags = cudaEventDisableTiming | cudaEventInterprocess;
    CHECK(cudaEventCreateWithFlags(&written_, kFlags));
    CHECK(cudaEventCreateWithFlags(&read_, kFlags));
    CHECK(cudaMalloc(&states_, kStates * sizeof(uint32_t)));
    CHECK(cudaMalloc(&result_, sizeof(uint32_t)));
    CHECK(cudaMallocHost(&token_, 2 * sizeof(uint32_t)));
    for (uint32_t shape = 0; shape < shapes; ++shape) Capture(shape);
    Exchange();
  }

  // The sum of what both ranks computed.
  uint32_t Serve(uint32_t shape, uint32_t token) {
    *token_ = token;
    CHECK(cudaMemcpyAsync(states_, token_, sizeof(token), cudaMemcpyHostToDevice, stream_));
    // The other rank has read the last result.
    CHECK(cudaStreamWaitEvent(stream_, peer_read_));
    CHECK(cudaGraphLaunch(graphs_[shape], stream_));
    CHECK(cudaEventRecord(written_, stream_));
    Meet();
    CHECK(cudaStreamWaitEvent(stream_, peer_written_));
    Add<<<1, 1, 0, stream_>>>(result_, peer_result_, states_);
    CHECK(cudaEventRecord(read_, stream_));
    CHECK(cudaMemcpyAsync(token_ + 1, states_, sizeof(token), cudaMemcpyDeviceToHost, stream_));
    Meet();
    CHECK(cudaStreamSynchronize(stream_));
    return token_[1];
  }

  void SleepAndWake(uint32_t first_graph) {
    CHECK(cudaDeviceSynchronize());
    Meet();
    CHECK(cudaIpcCloseMemHandle(peer_result_));
    CHECK(cudaEventDestroy(peer_written_));
    CHECK(cudaEventDestroy(peer_read_));
    CHECK(cudaHostRegister(host_, host_bytes_, cudaHostRegisterDefault));
    CHECK(cudaMemcpy(host_, weights_.words(), weights_.bytes(), cudaMemcpyDeviceToHost));
    weights_.GiveBack();
    weights_.Take();
    CHECK(cudaMemcpy(weights_.words(), host_, weights_.bytes(), cudaMemcpyHostToDevice));
    CHECK(cudaHostUnregister(host_));
    for (int i = 0; i < kGraphsCapturedAnew; ++i) Capture((first_graph + i) % graphs_.size());
    Exchange();
  }

 private:
  static constexpr uint32_t kStates = 4;  // the token, and the result of each layer but the last

  void Capture(uint32_t shape) {
    if (graphs_[shape] != nullptr) CHECK(cudaGraphExecDestroy(graphs_[shape]));
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (uint32_t layer = 0; layer < LayersOf(shape); ++layer) {
      uint32_t* const next = layer + 1 == LayersOf(shape) ? result_ : states_ + layer + 1;
      CHECK(cudaMemsetAsync(next, 0, sizeof(*next), stream_));
      Layer<<<1 + shape / 4, kThreads, 0, stream_>>>(weights_.words(), WordsOf(shape),
                                                     states_ + layer, next);
    }
    CHECK(cudaStreamEndCapture(stream_, &graph));
    CHECK(cudaGraphInstantiate(&graphs_[shape], graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }

  // Opens the other rank's result and events.
  void Exchange() {
    Handles own{}, peer{};
    CHECK(cudaIpcGetMemHandle(&own.result, result_));
    CHECK(cudaIpcGetEventHandle(&own.written, written_));
    CHECK(cudaIpcGetEventHandle(&own.read, read_));
    Send(&own, sizeof(own));
    Receive(&peer, sizeof(peer));
    void* opened = nullptr;
    CHECK(cudaIpcOpenMemHandle(&opened, peer.result, cudaIpcMemLazyEnablePeerAccess));
    peer_result_ = static_cast<uint32_t*>(opened);
    CHECK(cudaIpcOpenEventHandle(&peer_written_, peer.written));
    CHECK(cudaIpcOpenEventHandle(&peer_read_, peer.read));
    Meet();
  }

  // Returns once the other rank has come here, too.
  void Meet() {
    char byte = 0;
    Send(&byte, 1);
    Receive(&byte, 1);
  }
  void Send(const void* bytes, size_t count) {
    if (send(socket_, bytes, count, MSG_NOSIGNAL) != static_cast<ssize_t>(count)) LosePeer();
  }
  void Receive(void* bytes, size_t count) {
    if (recv(socket_, bytes, count, MSG_WAITALL) != static_cast<ssize_t>(count)) LosePeer();
  }
  [[noreturn]] static void LosePeer() {
    std::fprintf(stderr, "serving: the other rank has ended\n");
    std::exit(1);
  }

  const int socket_;
  Weights weights_;
  std::vector<cudaGraphExec_t> graphs_;
  char* host_ = nullptr;
  size_t host_bytes_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t written_ = nullptr, read_ = nullptr, peer_written_ = nullptr, peer_read_ = nullptr;
  uint32_t *states_ = nullptr, *result_ = nullptr, *peer_result_ = nullptr, *token_ = nullptr;
};

// A request for both ranks. Shape kSleep lets them sleep and wake; kEnd ends them.
struct Request {
  static constexpr uint32_t kSleep = UINT32_MAX, kEnd = UINT32_MAX - 1;
  uint32_t shape, token;
};

// The second rank. Its requests come through a pipe.
int Follow(int requests, int socket, size_t weights_mib, size_t host_mib, uint32_t shapes) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Rank rank(socket, weights_mib, host_mib, shapes);
  Request request;
  while (read(requests, &request, sizeof(request)) == sizeof(request)) {
    if (request.shape == Request::kEnd) return 0;
    if (request.shape == Request::kSleep) {
      rank.SleepAndWake(request.token);
    } else {
      rank.Serve(request.shape, request.token + 1);
    }
  }
  return 1;
}

void PrintLatencies(std::vector<float>* latencies) {
  std::sort(latencies->begin(), latencies->end());
  const size_t count = latencies->size();
  std::printf("latency %.1f %.1f %.1f %zu\n", (*latencies)[count / 2], (*latencies)[count * 9 / 10],
              (*latencies)[count * 99 / 100], count);
  std::fflush(stdout);
  latencies->clear();
}

int Serve(uint32_t seed, size_t weights_mib, size_t host_mib, uint32_t shapes) {
  if (weights_mib << 20 < WordsOf(shapes) * sizeof(uint32_t) || shapes == 0) {
    std::fprintf(stderr, "serving: the weights are too few for the shapes\n");
    return 2;
  }
  int sockets[2], requests[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || pipe(requests) != 0) return 1;
  const pid_t follower = fork();
  if (follower == 0) {
    close(requests[1]);
    close(sockets[0]);
    std::exit(Follow(requests[0], sockets[1], weights_mib, host_mib, shapes));
  }
  close(requests[0]);
  close(sockets[1]);
  signal(SIGPIPE, SIG_IGN);
  StopAtSigterm();
  const auto tell = [&](const Request& request) {
    return write(requests[1], &request, sizeof(request)) == sizeof(request);
  };
  Rank rank(sockets[0], weights_mib, host_mib, shapes);
  Ready();
  std::vector<float> latencies;
  Clock::time_point second = Clock::now();
  uint32_t random = seed | 1, number = 0;
  for (; g_stop == 0; ++number) {
    random = random * 1664525u + 1013904223u;
    const Request request{(random >> 8) % shapes, random};
    const Clock::time_point begin = Clock::now();
    if (!tell(request)) return 1;
    const uint32_t sum = rank.Serve(request.shape, request.token);
    const Clock::time_point end = Clock::now();
    latencies.push_back(std::chrono::duration<float, std::micro>(end - begin).count());
    if (sum != OnCpu(request.shape, request.token) + OnCpu(request.shape, request.token + 1)) {
      std::fprintf(stderr, "serving: request %u differs\n", number);
      return 3;
    }
    if (end - second >= std::chrono::seconds(1)) {
      PrintLatencies(&latencies);
      second = end;
    }
    if (number % kRequestsAwake == kRequestsAwake - 1) {
      const uint32_t first_graph = (random >> 8) % shapes;
      if (!tell({Request::kSleep, first_graph})) return 1;
      rank.SleepAndWake(first_graph);
    }
    usleep(500);
  }
  int status = 0;
  if (!tell({Request::kEnd, 0}) || waitpid(follower, &status, 0) != follower || status != 0)
    return 1;
  std::printf("served %u\n", number);
  return 0;
}

int ServeOne(uint32_t token) {
  uint32_t *weights = nullptr, *states = nullptr;
  CHECK(cudaMalloc(&weights, WordsOf(0) * sizeof(uint32_t)));
  CHECK(cudaMalloc(&states, 2 * sizeof(uint32_t)));
  CHECK(cudaMemset(states, 0, 2 * sizeof(uint32_t)));
  CHECK(cudaMemcpy(states, &token, sizeof(token), cudaMemcpyHostToDevice));
  Fill<<<4, kThreads>>>(weights, WordsOf(0));
  Layer<<<4, kThreads>>>(weights, WordsOf(0), states, states + 1);
  uint32_t sum = 0;
  CHECK(cudaMemcpy(&sum, states + 1, sizeof(sum), cudaMemcpyDeviceToHost));
  return sum == OnCpu(0, token) ? 0 : 3;
}

int ForkServer(uint32_t seed) {
  StopAtSigterm();
  Ready();
  uint32_t children = 0;
  for (; g_stop == 0; ++children) {
    const pid_t child = fork();
    if (child == 0) std::exit(ServeOne(seed + children));
    int status = 0;
    while (waitpid(child, &status, 0) != child) {
    }
    if (status != 0) {
      std::fprintf(stderr, "serving: child %u ended with status %d\n", children, status);
      return 1;
    }
    usleep(200'000);
  }
  std::printf("forked %u\n", children);
  return 0;
}

// A function of NVML, whose header is not part of the CUDA Toolkit. Calls succeed or end the process.
template <typename... Arguments>
void Nvml(void* library, const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  const int result = function == nullptr ? -1 : function(arguments...);
  if (result == 0) return;
  std::fprintf(stderr, "serving: %s: NVML error %d\n", name, result);
  std::exit(1);
}

int Poll() {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "serving: %s\n", dlerror());
    return 1;
  }
  StopAtSigterm();
  Ready();
  uint32_t polls = 0;
  for (; g_stop == 0; ++polls) {
    Nvml(library, "nvmlInit_v2");
    unsigned devices = 0;
    Nvml(library, "nvmlDeviceGetCount_v2", &devices);
    for (unsigned i = 0; i < devices; ++i) {
      void* device = nullptr;
      unsigned long long memory[3];  // nvmlMemory_t: total, free and used bytes
      unsigned utilization[2];       // nvmlUtilization_t: GPU and memory, in percent
      Nvml(library, "nvmlDeviceGetHandleByIndex_v2", i, &device);
      Nvml(library, "nvmlDeviceGetMemoryInfo", device, &memory[0]);
      Nvml(library, "nvmlDeviceGetUtilizationRates", device, &utilization[0]);
    }
    Nvml(library, "nvmlShutdown");
    usleep(100'000);
  }
  std::printf("polled %u\n", polls);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  const auto number = [&](int i) {
    return i < argc ? static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10)) : 0;
  };
  if (kind == "serve" && argc == 6) return Serve(number(2), number(3), number(4), number(5));
  if (kind == "fork_server" && argc == 3) return ForkServer(number(2));
  if (kind == "poll") return Poll();
  std::fprintf(stderr, "serving_worker KIND ...; see the source\n");
  return 2;
}
