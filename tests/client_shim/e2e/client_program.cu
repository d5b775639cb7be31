// A CUDA program that does what its first argument says. The tests of this folder start it, and
// sometimes kill it.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kFailed = 3;

void Say(const char* text) {
  std::printf("%s\n", text);
  std::fflush(stdout);
}

// Ends the program on an error and prints the error's name on stdout.
void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  Say(cudaGetErrorName(error));
  std::_Exit(kFailed);
}

__global__ void Mix(uint32_t* values, int count, uint32_t seed, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  uint32_t value = values[i] + seed;
  for (int r = 0; r < rounds; ++r) value = value * 1664525u + 1013904223u + i;
  values[i] = value;
}

uint32_t MixOnCpu(uint32_t value, uint32_t seed, int rounds, uint32_t i) {
  value += seed;
  for (int r = 0; r < rounds; ++r) value = value * 1664525u + 1013904223u + i;
  return value;
}

constexpr int kCount = 20000;
constexpr int kThreads = 128;
constexpr int kBlocks = (kCount + kThreads - 1) / kThreads;

// Copies, launches and copies back. Compares with the CPU and prints a digest.
int Compute(uint32_t seed) {
  std::vector<uint32_t> values(kCount);
  for (int i = 0; i < kCount; ++i) values[i] = i * 7 + seed;
  const std::vector<uint32_t> start = values;
  uint32_t* device = nullptr;
  Check(cudaMalloc(&device, kCount * sizeof(uint32_t)));
  Check(cudaMemcpy(device, values.data(), kCount * sizeof(uint32_t), cudaMemcpyHostToDevice));
  for (int round = 0; round < 5; ++round) {
    Mix<<<kBlocks, kThreads>>>(device, kCount, seed + round, 10);
    Check(cudaGetLastError());
  }
  Check(cudaMemcpy(values.data(), device, kCount * sizeof(uint32_t), cudaMemcpyDeviceToHost));
  Check(cudaFree(device));
  uint64_t digest = 14695981039346656037u;
  for (int i = 0; i < kCount; ++i) {
    uint32_t expected = start[i];
    for (int round = 0; round < 5; ++round) expected = MixOnCpu(expected, seed + round, 10, i);
    if (values[i] != expected) {
      std::printf("value %d is %u instead of %u\n", i, values[i], expected);
      return 1;
    }
    digest = (digest ^ values[i]) * 1099511628211u;
  }
  std::printf("digest %016llx\n", static_cast<unsigned long long>(digest));
  return 0;
}

// Prints from where the driver library was loaded.
int Where() {
  Check(cudaFree(nullptr));
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  Dl_info info;
  if (library == nullptr || dladdr(dlsym(library, "cuInit"), &info) == 0) return 1;
  char path[4096];
  if (realpath(info.dli_fname, path) == nullptr) return 1;
  Say(path);
  return 0;
}

// Holds memory of every kind and copies until it is killed.
int CopyForEver() {
  constexpr size_t kBytes = 32 << 20;
  char* device = nullptr;
  char* pinned = nullptr;
  Check(cudaMalloc(&device, kBytes));
  Check(cudaMallocHost(&pinned, kBytes));
  std::vector<char> pageable(kBytes, 1), registered(1 << 20);
  Check(cudaHostRegister(registered.data(), registered.size(), cudaHostRegisterDefault));
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream));
  Say("ready");
  for (;;) {
    Check(cudaMemcpyAsync(device, pinned, kBytes, cudaMemcpyHostToDevice, stream));
    Check(cudaMemcpy(device, pageable.data(), kBytes, cudaMemcpyHostToDevice));
    Check(cudaMemcpy(pageable.data(), device, kBytes, cudaMemcpyDeviceToHost));
  }
}

// Launches until the driver returns an error.
int WorkForEver() {
  uint32_t* device = nullptr;
  Check(cudaMalloc(&device, kCount * sizeof(uint32_t)));
  Check(cudaMemset(device, 0, kCount * sizeof(uint32_t)));
  Check(cudaDeviceSynchronize());
  Say("ready");
  for (uint32_t i = 0;; ++i) {
    Mix<<<kBlocks, kThreads>>>(device, kCount, i, 10);
    Check(cudaGetLastError());
    if (i % 10 == 9) Check(cudaDeviceSynchronize());
  }
}

// Makes calls that the daemon replies to, until the driver returns an error. They are the driver's,
// because the runtime asks the driver more after an error.
int AskForEver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return 1;
  const auto get_info =
      reinterpret_cast<CUresult (*)(size_t*, size_t*)>(dlsym(library, "cuMemGetInfo_v2"));
  Check(cudaFree(nullptr));
  Say("ready");
  for (;;) {
    size_t free = 0, total = 0;
    Check(static_cast<cudaError_t>(get_info(&free, &total)));
  }
}

// ---- ways to end

uint32_t* g_device = nullptr;

void AtExit() {
  // The result depends on which library was torn down first. Only a crash or a hang would be wrong.
  cudaMemset(g_device, 0, 16);
  cudaDeviceSynchronize();
  cudaFree(g_device);
  Say("atexit");
}

struct Owner {
  ~Owner() {
    cudaFree(g_device);
    Say("destructor");
  }
};

int EndWithAtExit() {
  static Owner owner;
  Check(cudaMalloc(&g_device, 1 << 20));
  std::atexit(AtExit);
  return Compute(1);
}

int EndWithWorkInFlight() {
  Check(cudaMalloc(&g_device, kCount * sizeof(uint32_t)));
  for (int i = 0; i < 20; ++i) Mix<<<kBlocks, kThreads>>>(g_device, kCount, i, 1000);
  Check(cudaGetLastError());
  Say("launched");
  return 0;
}

// The threads call the driver only: the runtime's own state is gone while exit handlers run, so a
// thread inside the runtime crashes natively, too.
// Allocates while another thread waits for room for its launches, which go on only afterwards.
int AllocatePastQueue() {
  uint32_t* device = nullptr;
  cudaStream_t stream = nullptr;
  Check(cudaMalloc(&device, kCount * sizeof(uint32_t)));
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  static std::atomic<bool> open{false};
  Check(cudaLaunchHostFunc(
      stream,
      [](void*) {
        while (!open) usleep(100);
      },
      nullptr));
  std::atomic<int> launched{0};
  std::thread launches([&] {
    while (!open) {
      Mix<<<1, 32, 0, stream>>>(device, 0, 0, 0);
      Check(cudaGetLastError());
      ++launched;
    }
  });
  for (int before = -1; before != launched;) {
    before = launched;
    usleep(300'000);
  }
  void* memory = nullptr;
  size_t free_bytes = 0, all_bytes = 0;
  cudaArray_t array = nullptr;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  Check(cudaMalloc(&memory, 8 << 20));
  Check(cudaMemGetInfo(&free_bytes, &all_bytes));
  Check(cudaMallocArray(&array, &format, 64, 64));
  Say("allocated");
  open = true;
  launches.join();
  Check(cudaStreamSynchronize(stream));
  Check(cudaFree(memory));
  Check(cudaFreeArray(array));
  return 0;
}

int EndWhileThreadsWork() {
  Check(cudaFree(nullptr));
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto launch = reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(driver, "cuLaunchKernel"));
  const auto synchronize =
      reinterpret_cast<decltype(&cuCtxSynchronize)>(dlsym(driver, "cuCtxSynchronize"));
  const auto set_current =
      reinterpret_cast<decltype(&cuCtxSetCurrent)>(dlsym(driver, "cuCtxSetCurrent"));
  const auto get_current =
      reinterpret_cast<decltype(&cuCtxGetCurrent)>(dlsym(driver, "cuCtxGetCurrent"));
  cudaFunction_t mix = nullptr;
  Check(cudaGetFuncBySymbol(&mix, reinterpret_cast<const void*>(Mix)));
  CUcontext context = nullptr;
  if (get_current(&context) != CUDA_SUCCESS) return kFailed;
  std::atomic<int> running{0};
  for (int t = 0; t < 3; ++t) {
    uint32_t* device = nullptr;
    Check(cudaMalloc(&device, kCount * sizeof(uint32_t)));
    std::thread([=, &running]() mutable {
      if (set_current(context) != CUDA_SUCCESS) return;
      for (uint32_t i = 0;; ++i) {
        int count = kCount, rounds = 10;
        void* arguments[] = {&device, &count, &i, &rounds};
        if (launch(mix, kBlocks, 1, 1, kThreads, 1, 1, 0, nullptr, arguments, nullptr) !=
                CUDA_SUCCESS ||
            synchronize() != CUDA_SUCCESS)
          return;
        if (i == 2) ++running;
      }
    }).detach();
  }
  while (running < 3) usleep(1000);
  std::exit(7);
}

// ---- fork

int Forked(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int ForkAfterInit() {
  if (Compute(1) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, 16);
    Say(cudaGetErrorName(error));
    std::exit(error == cudaErrorInitializationError || error == cudaErrorNotPermitted ? 0 : 1);
  }
  if (Forked(child) != 0) return 1;
  return Compute(2);
}

int ForkBeforeInit() {
  const pid_t child = fork();
  if (child == 0) std::exit(Compute(1));
  const int mine = Compute(2);
  return Forked(child) != 0 ? 1 : mine;
}

// Executes another CUDA program in a child, as build tools and job runners do.
int ForkAndExecute(char* self) {
  if (Compute(1) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    execl(self, self, "compute", "2", nullptr);
    std::_Exit(1);
  }
  if (Forked(child) != 0) return 1;
  return Compute(3);
}

// ---- a fault

__global__ void WriteTo(uint32_t* where) { *where = 1; }

// Accesses memory that belongs to no allocation. Every later call returns the error.
int Fault() {
  uint32_t* device = nullptr;
  Check(cudaMalloc(&device, 16));
  WriteTo<<<1, 1>>>(device + (1 << 28));
  Say(cudaGetErrorName(cudaDeviceSynchronize()));
  Say(cudaGetErrorName(cudaMalloc(&device, 16)));
  return 0;
}

// ---- CUDA_VISIBLE_DEVICES

int Devices() {
  int count = -1;
  const cudaError_t error = cudaGetDeviceCount(&count);
  std::printf("%s %d", cudaGetErrorName(error), count);
  for (int i = 0; i < count; ++i) {
    char id[32];
    Check(cudaDeviceGetPCIBusId(id, sizeof(id), i));
    std::printf(" %s", id);
  }
  std::printf("\n");
  return 0;
}

// Uses the second device, which was never current while the code was loaded.
int EveryDevice() {
  int count = 0;
  Check(cudaGetDeviceCount(&count));
  for (int i = 0; i < count; ++i) {
    Check(cudaSetDevice(i));
    if (Compute(i + 1) != 0) return 1;
  }
  return 0;
}

// Variables and functions are as new after a reset.
__device__ int g_counter = 41;
__global__ void Increment() { ++g_counter; }

int Reset() {
  for (int i = 0; i < 2; ++i) {
    Increment<<<1, 1>>>();
    int value = 0;
    Check(cudaMemcpyFromSymbol(&value, g_counter, sizeof(value)));
    std::printf("counter %d\n", value);
    Check(cudaDeviceReset());
  }
  return Compute(1);
}

// ---- limits of a session

// Makes objects until the daemon allows no more, and uses CUDA on. Prints how many of each kind
// there were beside the default stream and the primary context.
int Limits() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto create = reinterpret_cast<decltype(&cuCtxCreate_v4)>(dlsym(driver, "cuCtxCreate_v4"));
  const auto destroy = reinterpret_cast<decltype(&cuCtxDestroy)>(dlsym(driver, "cuCtxDestroy_v2"));
  if (create == nullptr || destroy == nullptr) return 1;
  if (Compute(1) != 0) return 1;  // makes the default stream
  std::vector<cudaStream_t> streams;
  cudaStream_t stream;
  cudaError_t refused;
  while ((refused = cudaStreamCreate(&stream)) == cudaSuccess) streams.push_back(stream);
  std::printf("streams %zu %s\n", streams.size(), cudaGetErrorName(refused));
  Check(cudaStreamDestroy(streams.back()));
  Check(cudaStreamCreate(&streams.back()));
  for (const cudaStream_t made : streams) Check(cudaStreamDestroy(made));
  std::vector<cudaEvent_t> events;
  cudaEvent_t event;
  while ((refused = cudaEventCreate(&event)) == cudaSuccess) events.push_back(event);
  std::printf("events %zu %s\n", events.size(), cudaGetErrorName(refused));
  for (const cudaEvent_t made : events) Check(cudaEventDestroy(made));
  std::vector<CUcontext> contexts;
  CUcontext context;
  CUresult full;
  while ((full = create(&context, nullptr, 0, 0)) == CUDA_SUCCESS) contexts.push_back(context);
  std::printf("contexts %zu %d\n", contexts.size(), full);
  for (; !contexts.empty(); contexts.pop_back()) {
    if (destroy(contexts.back()) != CUDA_SUCCESS) return 1;
  }
  Check(cudaSetDevice(0));
  cudaGetLastError();
  return Compute(2);
}

// Executable graphs have memory of their own for copies of ordinary memory. One is destroyed before the
// context ends, while the thread of host functions is busy, and one afterwards. The memory that the
// program pins then has the addresses of theirs.
int ResetWithGraphs() {
  constexpr size_t kBytes = 8 << 20;
  for (const bool before : {true, false}) {
    std::vector<char> ordinary(kBytes);
    char *device = nullptr, *pinned = nullptr;
    Check(cudaMalloc(&device, kBytes));
    cudaGraph_t graph;
    cudaGraphNode_t node;
    cudaGraphExec_t exec;
    Check(cudaGraphCreate(&graph, 0));
    Check(cudaGraphAddMemcpyNode1D(&node, graph, nullptr, 0, ordinary.data(), device, kBytes,
                                   cudaMemcpyDeviceToHost));
    Check(cudaGraphInstantiate(&exec, graph, 0));
    Check(cudaGraphDestroy(graph));
    Check(cudaGraphLaunch(exec, nullptr));
    Check(cudaDeviceSynchronize());
    cudaUserObject_t object;
    Check(cudaUserObjectCreate(
        &object, nullptr, [](void*) { usleep(100'000); }, 1, cudaUserObjectNoDestructorSync));
    Check(cudaUserObjectRelease(object, 1));
    if (before) Check(cudaGraphExecDestroy(exec));
    Check(cudaDeviceReset());
    Check(cudaMallocHost(&pinned, kBytes));
    if (!before) Check(cudaGraphExecDestroy(exec));
    for (int i = 0; i < 20; ++i) {
      std::memset(pinned, i, kBytes);
      usleep(10'000);
    }
    Check(cudaMemset(pinned, 77, kBytes));
    Check(cudaDeviceSynchronize());
    if (pinned[0] != 77 || pinned[kBytes - 1] != 77) return kFailed;
    Check(cudaDeviceReset());
  }
  return Compute(1);
}

// More events that the program asks about than a session has fences, and then streams that need fences.
int ManyEvents() {
  constexpr int kEvents = 34'000;
  std::atomic<int> ran{0};
  std::vector<cudaEvent_t> events(kEvents);
  for (cudaEvent_t& event : events) {
    Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (int i = 0; i < 2; ++i) {
      Check(cudaEventRecord(event, nullptr));
      const cudaError_t result = cudaEventQuery(event);
      if (result != cudaErrorNotReady) Check(result);
    }
  }
  for (int i = 0; i < 100; ++i) {
    cudaStream_t stream;
    Check(cudaStreamCreate(&stream));
    Check(cudaLaunchHostFunc(
        stream, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &ran));
  }
  Check(cudaEventRecord(events.back(), nullptr));
  Check(cudaEventSynchronize(events.back()));
  Check(cudaDeviceSynchronize());
  for (const cudaEvent_t event : events) Check(cudaEventQuery(event));
  std::printf("ran %d\n", ran.load());
  return Compute(1);
}

// Registered memory that the program has freed: by halves, and with other memory at its addresses
// since, which nobody may read.
int FreedRegistered() {
  constexpr size_t kBytes = 1 << 20;
  const auto map = [](void* at) {
    void* const memory = mmap(at, kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0), -1, 0);
    if (memory == MAP_FAILED) _exit(kFailed);
    return static_cast<char*>(memory);
  };
  char *half = map(nullptr), *replaced = map(nullptr), *unregistered = map(nullptr);
  for (char* const memory : {half, replaced, unregistered}) {
    std::memset(memory, 5, kBytes);
    Check(cudaHostRegister(memory, kBytes, cudaHostRegisterDefault));
  }
  munmap(half, kBytes / 2);
  std::memset(map(replaced), 6, kBytes);
  mprotect(replaced, kBytes, PROT_NONE);
  munmap(unregistered, kBytes);
  Check(cudaHostUnregister(unregistered));
  const auto kept = [&] {
    mprotect(replaced, kBytes, PROT_READ);
    return half[kBytes / 2] == 5 && half[kBytes - 1] == 5 && replaced[0] == 6 &&
           replaced[kBytes - 1] == 6;
  };
  const pid_t child = fork();
  if (child == 0) _exit(kept() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  std::printf("child %d\n", status);
  Check(cudaHostUnregister(half));
  Check(cudaDeviceReset());  // ends the third registration
  std::printf("%s\n", kept() ? "kept" : "lost");
  return Compute(1);
}

// A graph with memory of its own outlives the context. New memory then has the address of the
// graph's.
int ResetWithGraphMemory() {
  cudaStream_t stream;
  cudaGraph_t graph;
  void *of_graph = nullptr, *later = nullptr;
  Check(cudaStreamCreate(&stream));
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  Check(cudaMallocAsync(&of_graph, 100'000, stream));
  Check(cudaMemsetAsync(of_graph, 1, 100'000, stream));
  Check(cudaFreeAsync(of_graph, stream));
  Check(cudaStreamEndCapture(stream, &graph));
  Check(cudaDeviceReset());
  Check(cudaMalloc(&later, 100'000));
  std::printf("%s address\n", later == of_graph ? "same" : "other");
  Check(cudaFree(later));
  Check(cudaMalloc(&later, 100'000));
  Check(cudaGraphDestroy(graph));
  Check(cudaMemset(later, 2, 100'000));
  Check(cudaFree(later));
  return Compute(1);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const uint32_t seed = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  if (what == "compute") return Compute(seed);
  if (what == "compute-many") {
    for (int i = 0; i < 20; ++i) {
      if (Compute(seed) != 0) return 1;
    }
    return 0;
  }
  if (what == "where") return Where();
  if (what == "copy-for-ever") return CopyForEver();
  if (what == "work-for-ever") return WorkForEver();
  if (what == "ask-for-ever") return AskForEver();
  if (what == "atexit") return EndWithAtExit();
  if (what == "in-flight") return EndWithWorkInFlight();
  if (what == "exit-while-threads-work") return EndWhileThreadsWork();
  if (what == "fork-after-init") return ForkAfterInit();
  if (what == "fork-before-init") return ForkBeforeInit();
  if (what == "fork-and-execute") return ForkAndExecute(argv[0]);
  if (what == "fault") return Fault();
  if (what == "devices") return Devices();
  if (what == "every-device") return EveryDevice();
  if (what == "reset") return Reset();
  if (what == "limits") return Limits();
  if (what == "many-events") return ManyEvents();
  if (what == "allocate-past-queue") return AllocatePastQueue();
  if (what == "freed-registered") return FreedRegistered();
  if (what == "reset-with-graphs") return ResetWithGraphs();
  if (what == "reset-with-graph-memory") return ResetWithGraphMemory();
  std::fprintf(stderr, "unknown: %s\n", what.c_str());
  return 2;
}
