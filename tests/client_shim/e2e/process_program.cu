// A CUDA program whose process ends, forks, gets signals or lacks a resource, as its first argument
// says. Prints the results of its calls, and "ok" if they are right.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/time.h>
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

extern char** environ;

namespace {

constexpr int kFailed = 3;
constexpr int kCount = 4096;

void Say(const char* text) {
  std::printf("%s\n", text);
  std::fflush(stdout);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  Say(cudaGetErrorName(error));
  std::_Exit(kFailed);
}

__global__ void AddOne(int* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += 1;
}

void Launch(int* device, cudaStream_t stream = nullptr) {
  AddOne<<<kCount / 128, 128, 0, stream>>>(device, kCount);
  Check(cudaGetLastError());
}

// Uses device memory, copies both ways and makes a few launches.
bool Works() {
  std::vector<int> values(kCount, 5);
  int* device = nullptr;
  Check(cudaMalloc(&device, kCount * sizeof(int)));
  Check(cudaMemcpy(device, values.data(), kCount * sizeof(int), cudaMemcpyHostToDevice));
  for (int i = 0; i < 3; ++i) Launch(device);
  Check(cudaMemcpy(values.data(), device, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  Check(cudaFree(device));
  for (const int value : values) {
    if (value != 8) return false;
  }
  return true;
}

int Compute() {
  Say(Works() ? "ok" : "wrong");
  return 0;
}

// A function of the driver library that is loaded.
template <typename Function>
Function* Driver(const char* name) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  void* function = library != nullptr ? dlsym(library, name) : nullptr;
  if (function == nullptr) {
    Say(dlerror());
    std::_Exit(kFailed);
  }
  return reinterpret_cast<Function*>(function);
}

const char* NameOf(CUresult result) {
  const char* name = "(no name)";
  Driver<decltype(cuGetErrorName)>("cuGetErrorName")(result, &name);
  return name;
}

int StatusOf(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A stream that stands still until Open(), however fast the device is.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) {
    Check(cudaLaunchHostFunc(
        stream,
        [](void* self) {
          const Gate* gate = static_cast<Gate*>(self);
          while (!gate->open_.load()) usleep(500);
        },
        this));
  }
  void Open() { open_.store(true); }

 private:
  std::atomic<bool> open_{false};
};

int* WorkForEver() {
  int* device = nullptr;
  Check(cudaMalloc(&device, kCount * sizeof(int)));
  std::thread([device] {
    // Runs until the process ends. Its last calls may get the error that the runtime is unloading.
    do {
      AddOne<<<kCount / 128, 128>>>(device, kCount);
    } while (cudaGetLastError() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
  }).detach();
  std::thread([device] {
    std::vector<char> bytes(4 << 20);
    char* other = nullptr;
    if (cudaMalloc(&other, bytes.size()) != cudaSuccess) return;
    while (cudaMemcpy(other, bytes.data(), bytes.size(), cudaMemcpyHostToDevice) == cudaSuccess) {
    }
  }).detach();
  for (int i = 0; i < 20; ++i) {
    Launch(device);
    Check(cudaDeviceSynchronize());
  }
  return device;
}

// ---- ways to end

int ExitInHandler() {
  WorkForEver();
  signal(SIGALRM, [](int) { _exit(9); });
  raise(SIGALRM);
  return 1;
}

int Abort() {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  WorkForEver();
  std::abort();
}

int EndMainThread() {
  Check(cudaFree(nullptr));
  std::thread([main = pthread_self()] {
    pthread_join(main, nullptr);
    Say(Works() ? "ok" : "wrong");
    std::exit(5);
  }).detach();
  pthread_exit(nullptr);
}

int Execute(char* self) {
  WorkForEver();
  execl(self, self, "compute", nullptr);
  return 1;
}

int* g_memory = nullptr;
CUresult (*g_free)(CUdeviceptr) = nullptr;
CUresult (*g_synchronize)() = nullptr;

void FreeLate() {
  Say(NameOf(g_free(reinterpret_cast<CUdeviceptr>(g_memory))));
  Say(NameOf(g_synchronize()));
}

// The driver is torn down after the handlers that were registered after cuInit, and before those
// that were registered earlier.
int CallAfterTheEnd() {
  g_free = Driver<decltype(cuMemFree)>("cuMemFree_v2");
  g_synchronize = Driver<decltype(cuCtxSynchronize)>("cuCtxSynchronize");
  std::atexit(FreeLate);
  Check(cudaMalloc(&g_memory, 1 << 20));
  std::atexit([] { Say(Works() ? "ok" : "wrong"); });
  return 0;
}

struct ThreadsOwn {
  int* device = nullptr;
  ~ThreadsOwn() { Say(cudaGetErrorName(cudaFree(device))); }
};
thread_local ThreadsOwn threads_own;

int ThreadLocalDestructors() {
  std::thread([] {
    Check(cudaMalloc(&threads_own.device, 1 << 20));
    Launch(threads_own.device, cudaStreamPerThread);
  }).join();
  Check(cudaMalloc(&threads_own.device, 1 << 20));
  return 0;
}

// The library stays loaded, whatever the program believes.
int CloseLibrary() {
  for (int i = 0; i < 3; ++i) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return 1;
    auto* init = reinterpret_cast<decltype(cuInit)*>(dlsym(library, "cuInit"));
    Say(NameOf(init(0)));
    dlclose(library);
  }
  return Compute();
}

// ---- fork

// The results of the runtime and the driver in a child, on its first thread and on another one.
int AskInChild() {
  void* memory = nullptr;
  Say(cudaGetErrorName(cudaMalloc(&memory, 16)));
  std::thread([] {
    CUdevice device;
    Say(NameOf(Driver<decltype(cuInit)>("cuInit")(0)));
    Say(NameOf(Driver<decltype(cuDeviceGet)>("cuDeviceGet")(&device, 0)));
  }).join();
  return 0;
}

int ForkStorm() {
  int* device = nullptr;
  constexpr int kForks = 200;
  Check(cudaMalloc(&device, kCount * sizeof(int)));
  Check(cudaMemset(device, 0, kCount * sizeof(int)));
  std::atomic<bool> stop{false};
  int launched = 0;
  std::thread worker([&] {
    while (!stop.load()) {
      Launch(device);
      ++launched;
      Check(cudaDeviceSynchronize());
    }
  });
  int failed = 0;
  for (int i = 0; i < kForks; i += 4) {
    pid_t children[4];
    for (int kind = 0; kind < 4; ++kind) {
      children[kind] = fork();
      if (children[kind] != 0) continue;
      if (kind == 0) _exit(0);
      if (kind == 1) std::exit(0);  // runs every handler and destructor
      if (kind == 2) {
        execl("/bin/true", "true", nullptr);
        _exit(1);
      }
      void* memory = nullptr;
      _exit(cudaMalloc(&memory, 16) == cudaErrorInitializationError ? 0 : 1);
    }
    for (const pid_t child : children) failed += StatusOf(child) != 0;
  }
  stop.store(true);
  worker.join();
  int value = -1;
  Check(cudaMemcpy(&value, device + 100, sizeof(value), cudaMemcpyDeviceToHost));
  std::printf("%d children failed, %s\n", failed,
              value == launched && launched > 0 && Works() ? "ok" : "wrong");
  return 0;
}

// Host memory that the GPU reaches, in a child. Pinned memory is shared, as natively. Registered
// memory is the child's own copy. The child can free neither.
int ForkWithHostMemory() {
  constexpr int kInts = 1 << 18;
  int* pinned = nullptr;
  int* device = nullptr;
  Check(cudaMallocHost(&pinned, kInts * sizeof(int)));
  Check(cudaMalloc(&device, kInts * sizeof(int)));
  std::vector<int> registered(kInts);
  Check(cudaHostRegister(registered.data(), kInts * sizeof(int), cudaHostRegisterDefault));
  for (int i = 0; i < kInts; ++i) pinned[i] = registered[i] = i;
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < kInts; ++i) {
      if (pinned[i] != i || registered[i] != i) _exit(1);
      registered[i] = -1;
    }
    cudaHostUnregister(registered.data());
    cudaFreeHost(pinned);
    std::exit(pinned[1] == 1 ? 0 : 2);
  }
  const int status = StatusOf(child);
  int* const sources[] = {pinned, registered.data()};
  bool right = status == 0;
  for (int* source : sources) {
    std::vector<int> back(kInts);
    Check(cudaMemcpy(device, source, kInts * sizeof(int), cudaMemcpyHostToDevice));
    Check(cudaMemcpy(back.data(), device, kInts * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < kInts; ++i) right = right && back[i] == i && source[i] == i;
  }
  Check(cudaHostUnregister(registered.data()));
  Check(cudaFreeHost(pinned));
  Say(right ? "ok" : "wrong");
  return 0;
}

// Starts other programs in every way that exists.
int StartOthers(char* self) {
  WorkForEver();
  const std::string command = std::string(self) + " compute";
  std::printf("system %d\n", std::system(command.c_str()));
  FILE* pipe = popen(command.c_str(), "r");
  char line[64] = "";
  if (pipe == nullptr || std::fgets(line, sizeof(line), pipe) == nullptr) return 1;
  std::printf("popen %d %s", pclose(pipe), line);
  std::fflush(stdout);
  char what[] = "compute";
  char* arguments[] = {self, what, nullptr};
  pid_t spawned;
  if (posix_spawn(&spawned, self, nullptr, nullptr, arguments, environ) != 0) return 1;
  std::printf("posix_spawn %d\n", StatusOf(spawned));
  std::fflush(stdout);
  const pid_t child = vfork();
  if (child == 0) {
    execv(self, arguments);
    _exit(1);
  }
  std::printf("vfork %d\n", StatusOf(child));
  const int code = Compute();
  // The CUDA runtime's own exit handler crashes now and then beside a thread that copies.
  std::fflush(stdout);
  _exit(code);
}

// The parent ends and its child lives on, until the test writes to the pipe on stdin.
int LeaveChild() {
  Check(cudaFree(nullptr));
  if (fork() == 0) {
    Say("child");
    char byte;
    while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR) {
    }
    Say("child ends");
    _exit(0);
  }
  return 0;
}

// The daemon refuses the parent, because the environment names a device that the daemon does not
// have. gRPC has run by then.
int ForkAfterRefusal() {
  auto* init = Driver<decltype(cuInit)>("cuInit");
  Say(NameOf(init(0)));
  const pid_t child = fork();
  if (child == 0) {
    Say(NameOf(init(0)));
    std::exit(0);
  }
  return StatusOf(child);
}

// ---- signals

volatile sig_atomic_t g_signals = 0;
void CountSignal(int) { g_signals = g_signals + 1; }

void Handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;  // without SA_RESTART, so every system call may be interrupted
  sigaction(signal, &action, nullptr);
}

int SignalStorm() {
  Handle(SIGALRM, CountSignal);
  Handle(SIGPROF, CountSignal);
  const itimerval often{{0, 300}, {0, 300}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  setitimer(ITIMER_PROF, &often, nullptr);
  int* pinned = nullptr;
  bool right = true;
  std::vector<char> bytes(3 << 20, 7);
  for (int round = 0; round < 10; ++round) {
    char* device = nullptr;
    right = Works() && right;
    Check(cudaMallocHost(&pinned, 1 << 16));
    Check(cudaFreeHost(pinned));
    Check(cudaMalloc(&device, bytes.size()));
    Check(cudaMemcpy(device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    Check(cudaMemcpy(bytes.data(), device, bytes.size(), cudaMemcpyDeviceToHost));
    Check(cudaFree(device));
    cudaStream_t stream;
    cudaEvent_t event;
    Check(cudaStreamCreate(&stream));
    Check(cudaEventCreate(&event));
    Gate gate(stream);
    Check(cudaEventRecord(event, stream));
    const int seen = g_signals;
    std::thread opener([&] {
      while (g_signals < seen + 3) usleep(200);
      gate.Open();
    });
    Check(round % 2 == 0 ? cudaStreamSynchronize(stream) : cudaEventSynchronize(event));
    opener.join();
    Check(cudaEventDestroy(event));
    Check(cudaStreamDestroy(stream));
  }
  for (const char byte : bytes) right = right && byte == 7;
  setitimer(ITIMER_REAL, &never, nullptr);
  setitimer(ITIMER_PROF, &never, nullptr);
  Say(right ? "ok" : "wrong");
  return 0;
}

// As services do: all of the program's threads block the signal, and one of them waits for it.
int WaitForSignal() {
  Check(cudaFree(nullptr));
  std::vector<char> big(8 << 20);
  char* device = nullptr;
  Check(cudaMalloc(&device, big.size()));
  // starts the helper threads
  Check(cudaMemcpy(device, big.data(), big.size(), cudaMemcpyHostToDevice));
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream));
  Check(cudaLaunchHostFunc(
      stream, [](void*) {}, nullptr));
  Check(cudaStreamSynchronize(stream));
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  Say("ready");
  int signal = 0;
  sigwait(&ends, &signal);
  Say(signal == SIGTERM && Works() ? "ok" : "wrong");
  return 0;
}

// Ctrl-C while the program waits for the GPU.
int WaitForEver() {
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream));
  Gate gate(stream);
  Say("ready");
  Check(cudaStreamSynchronize(stream));
  return 0;
}

// The same with a handler. The handler runs at once, and the call goes on until its work is
// complete.
int HandleInWait() {
  static std::atomic<int> handled{0};
  Handle(SIGINT, [](int) { handled.store(1); });
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream));
  Gate gate(stream);
  std::thread opener([&] {
    while (handled.load() == 0) usleep(500);
    gate.Open();
  });
  Say("ready");
  Check(cudaStreamSynchronize(stream));
  std::printf("handled %d\n", handled.load());
  opener.join();
  return Compute();
}

// ---- limits

int FewDescriptors() {
  const int next = dup(STDOUT_FILENO);
  close(next);
  rlimit before;
  getrlimit(RLIMIT_NOFILE, &before);
  auto* init = Driver<decltype(cuInit)>("cuInit");
  for (const int more : {0, 1, 2, 5, 10}) {
    const rlimit few{static_cast<rlim_t>(next + more), before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    std::printf("%s ", NameOf(init(0)));
  }
  setrlimit(RLIMIT_NOFILE, &before);
  Say(NameOf(init(0)));
  return Compute();
}

int LittleAddressSpace() {
  auto* init = Driver<decltype(cuInit)>("cuInit");
  rlimit before;
  getrlimit(RLIMIT_AS, &before);
  const rlimit little{size_t{300} << 20, before.rlim_max};
  setrlimit(RLIMIT_AS, &little);
  Say(NameOf(init(0)));
  setrlimit(RLIMIT_AS, &before);
  Say(NameOf(init(0)));
  return Compute();
}

// A service changes its root directory once it has the GPU. Exits with 77 if the process may not do
// that.
int ChangeRoot() {
  Check(cudaFree(nullptr));
  if (chdir("/proc/self/fdinfo") != 0 || chroot(".") != 0) return 77;
  char* pinned = nullptr;
  Check(cudaMallocHost(&pinned, 1 << 20));
  Check(cudaFreeHost(pinned));
  return Compute();
}

// ---- launches that wait

int Blocking() {
  cudaStream_t stream;
  int* device = nullptr;
  Check(cudaStreamCreate(&stream));
  Check(cudaMalloc(&device, kCount * sizeof(int)));
  Gate gate(stream);
  std::atomic<bool> returned{false};
  std::thread launcher([&] {
    Launch(device, stream);
    returned.store(true);
  });
  // Without CUDA_LAUNCH_BLOCKING the launch returns although the stream stands still. With it, the
  // launch must not return.
  const bool wish = std::getenv("CUDA_LAUNCH_BLOCKING") != nullptr;
  if (!wish) launcher.join();
  usleep(20'000);
  std::printf("%s\n", returned.load() ? "returned" : "waits");
  gate.Open();
  if (wish) launcher.join();
  std::printf("%s\n", cudaGetErrorName(cudaStreamQuery(stream)));
  return 0;
}

// ---- threads

constexpr char kStorePtx[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry store(.param .u64 where, .param .u32 value) {
  .reg .u64 %where;
  .reg .u32 %value;
  ld.param.u64 %where, [where];
  ld.param.u32 %value, [value];
  st.global.u32 [%where], %value;
  ret;
}
)";

// One of many threads. It has its own streams, events, memory and code.
bool WorkAlone(int number) {
  static auto* const load = Driver<decltype(cuModuleLoadData)>("cuModuleLoadData");
  static auto* const find = Driver<decltype(cuModuleGetFunction)>("cuModuleGetFunction");
  static auto* const unload = Driver<decltype(cuModuleUnload)>("cuModuleUnload");
  static auto* const launch = Driver<decltype(cuLaunchKernel)>("cuLaunchKernel");
  bool right = true;
  for (int round = 0; round < 4; ++round) {
    cudaStream_t stream;
    cudaEvent_t event;
    int *ours = nullptr, *default_streams = nullptr, *pinned = nullptr;
    Check(cudaStreamCreateWithFlags(&stream, round % 2));
    Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    Check(cudaMalloc(&ours, kCount * sizeof(int)));
    Check(cudaMallocAsync(&default_streams, kCount * sizeof(int), cudaStreamPerThread));
    Check(cudaMallocHost(&pinned, 4096));
    std::vector<int> values(kCount, number);
    Check(
        cudaMemcpyAsync(ours, values.data(), kCount * sizeof(int), cudaMemcpyHostToDevice, stream));
    Check(cudaMemsetAsync(default_streams, 0, kCount * sizeof(int), cudaStreamPerThread));
    Launch(ours, stream);
    Launch(default_streams, cudaStreamPerThread);
    CUmodule module;
    CUfunction store;
    int value = 1000 * number + round;
    void* parameters[] = {&ours, &value};
    right = load(&module, kStorePtx) == CUDA_SUCCESS && right;
    right = find(&store, module, "store") == CUDA_SUCCESS && right;
    right =
        launch(store, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr) == CUDA_SUCCESS && right;
    Check(cudaEventRecord(event, stream));
    Check(cudaStreamWaitEvent(cudaStreamPerThread, event, 0));
    Check(cudaMemcpyAsync(pinned, ours, 4096, cudaMemcpyDeviceToHost, cudaStreamPerThread));
    Check(cudaEventSynchronize(event));
    Check(cudaMemcpy(values.data(), default_streams, kCount * sizeof(int), cudaMemcpyDeviceToHost));
    Check(cudaStreamSynchronize(cudaStreamPerThread));
    right = right && pinned[0] == value && pinned[1] == number + 1;
    Check(cudaMemcpy(values.data(), default_streams, kCount * sizeof(int), cudaMemcpyDeviceToHost));
    for (const int one : values) right = right && one == 1;
    right = unload(module) == CUDA_SUCCESS && right;
    Check(cudaFreeHost(pinned));
    Check(cudaFreeAsync(default_streams, cudaStreamPerThread));
    Check(cudaFree(ours));
    Check(cudaEventDestroy(event));
    Check(cudaStreamDestroy(stream));
  }
  return right;
}

int ManyThreads() {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 64; ++i) threads.emplace_back([&wrong, i] { wrong += !WorkAlone(i); });
  for (std::thread& thread : threads) thread.join();
  std::printf("%d threads wrong\n", wrong.load());
  return 0;
}

// An idle process that has used everything which starts a thread.
int Idle() {
  Check(cudaFree(nullptr));
  std::vector<char> big(8 << 20);
  char* device = nullptr;
  Check(cudaMalloc(&device, big.size()));
  Check(cudaMemcpy(device, big.data(), big.size(), cudaMemcpyHostToDevice));
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream));
  Check(cudaLaunchHostFunc(
      stream, [](void*) {}, nullptr));
  Check(cudaStreamSynchronize(stream));
  if (!Works()) return 1;
  Say("idle");
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "compute") return Compute();
  if (what == "exit-in-handler") return ExitInHandler();
  if (what == "abort") return Abort();
  if (what == "end-main-thread") return EndMainThread();
  if (what == "execute") return Execute(argv[0]);
  if (what == "call-after-the-end") return CallAfterTheEnd();
  if (what == "thread-local-destructors") return ThreadLocalDestructors();
  if (what == "close-library") return CloseLibrary();
  if (what == "fork-and-ask") {
    if (!Works()) return 1;
    const pid_t child = fork();
    if (child == 0) std::exit(AskInChild());
    const int status = StatusOf(child);
    return status != 0 ? status : Compute();
  }
  if (what == "fork-storm") return ForkStorm();
  if (what == "fork-with-host-memory") return ForkWithHostMemory();
  if (what == "start-others") return StartOthers(argv[0]);
  if (what == "leave-child") return LeaveChild();
  if (what == "fork-after-refusal") return ForkAfterRefusal();
  if (what == "signal-storm") return SignalStorm();
  if (what == "wait-for-signal") return WaitForSignal();
  if (what == "wait-for-ever") return WaitForEver();
  if (what == "handle-in-wait") return HandleInWait();
  if (what == "few-descriptors") return FewDescriptors();
  if (what == "little-address-space") return LittleAddressSpace();
  if (what == "change-root") return ChangeRoot();
  if (what == "blocking") return Blocking();
  if (what == "threads") return ManyThreads();
  if (what == "idle") return Idle();
  std::fprintf(stderr, "unknown: %s\n", what.c_str());
  return 2;
}
