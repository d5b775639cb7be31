// Natively: do graphs with conditional nodes end a context?
//
//     conditional_graphs [OPTION=VALUE...]
//
//     seconds=3       how long
//     threads=3       threads that launch graphs with conditional nodes, each in its own stream
//     rounds=10       rounds of a graph's loop
//     order=event     none, event (a graph's stream waits for the graph before), host (the launch waits),
//                     stream (all graphs are launched in one stream), idle (the launch waits until nothing is
//                     in flight in the context), alone (and others wait until the graph has ended)
//     build=once      once, or always: a new graph after each four launches
//     graphs=0        threads that launch plain graphs, in the same order
//     kernels=2       threads that launch kernels
//     batch=8         how many of them it launches at a time
//     length=0        how long one of these kernels runs, in microseconds
//     streams=1       streams of each of these
//     calls=none      what a further thread does: none, register, pinned, map, load, instantiate, streams,
//                     limit (of the stack), hold (a kernel of one thread that runs for 200 us, and a write
//                     to memory behind it)
//     priority=0      of the streams of conditional graphs
//     queued=no       yes: their streams wait for a kernel of another stream first
//     writes=no       yes: a value is written to memory behind each of them (cuStreamWriteValue64)
//     contexts=1      2: the conditional graphs run in a context of their own
//     near=0          how many of the threads that launch kernels are in that context
//     orders=one      each: each context has an order of its own
//
// Prints one line: whether the context lives, the launches of graphs with conditional nodes, and those
// of others. Several copies at a time make the hardware switch between contexts. The exit code is 1 if
// the context has ended or a loop had too few rounds.
#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

std::map<std::string, std::string> g_options = {
    {"seconds", "3"},  {"threads", "3"},  {"rounds", "10"}, {"order", "event"}, {"build", "once"},
    {"graphs", "0"},   {"kernels", "2"},  {"streams", "1"}, {"calls", "none"},  {"contexts", "1"},
    {"priority", "0"}, {"queued", "no"},  {"writes", "no"}, {"length", "0"},    {"batch", "8"},
    {"near", "0"},     {"orders", "one"},
};
std::atomic<long> g_conditional{0}, g_other{0}, g_wrong{0};
std::atomic<bool> g_stop{false};
// Shared by threads that submit other work, for orders in which they wait.
std::shared_mutex g_idle;

const std::string& Option(const char* name) { return g_options.at(name); }
int Number(const char* name) { return std::atoi(Option(name).c_str()); }

[[noreturn]] void End(const char* what, const char* error) {
  std::printf("ended   %9ld %9ld  %s: %s\n", g_conditional.load(), g_other.load(), what, error);
  std::fflush(stdout);
  std::_Exit(1);
}

void Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) End(what, cudaGetErrorName(error));
}
void Check(CUresult error, const char* what) {
  const char* name = "?";
  if (error == CUDA_SUCCESS) return;
  cuGetErrorName(error, &name);
  End(what, name);
}
#define CHECK(call) Check(call, #call)

__global__ void Loop(cudaGraphConditionalHandle handle, unsigned* counter, unsigned rounds) {
  *counter += 1;
  cudaGraphSetConditional(handle, *counter < rounds ? 1 : 0);
}
__global__ void Short() { __nanosleep(20'000); }
__global__ void Small(unsigned* counter, long long clocks) {
  const long long begin = clock64();
  while (clock64() - begin < clocks) {
  }
  atomicAdd(counter, 1u);
}

// How many cycles a kernel of the wanted length takes, at about 2 GHz.
long long Clocks() { return 2000LL * Number("length"); }

struct Built {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
};

cudaGraphNode_t AddKernel(cudaGraph_t graph, cudaGraphNode_t behind, void* kernel,
                          void** arguments) {
  cudaKernelNodeParams params{};
  params.func = kernel;
  params.gridDim = params.blockDim = 1;
  params.kernelParams = arguments;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddKernelNode(&node, graph, behind != nullptr ? &behind : nullptr,
                               behind != nullptr ? 1 : 0, &params));
  return node;
}

Built Build(bool conditional, unsigned* counter) {
  auto rounds = static_cast<unsigned>(Number("rounds"));
  Built built;
  CHECK(cudaGraphCreate(&built.graph, 0));
  if (conditional) {
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphConditionalHandleCreate(&handle, built.graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams loop{};
    loop.type = cudaGraphNodeTypeConditional;
    loop.conditional.handle = handle;
    loop.conditional.type = cudaGraphCondTypeWhile;
    loop.conditional.size = 1;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddNode(&node, built.graph, nullptr, nullptr, 0, &loop));
    void* arguments[] = {&handle, &counter, &rounds};
    AddKernel(loop.conditional.phGraph_out[0], nullptr, reinterpret_cast<void*>(Loop), arguments);
  } else {
    long long clocks = Clocks();
    void* arguments[] = {&counter, &clocks};
    cudaGraphNode_t last = nullptr;
    for (unsigned i = 0; i < rounds; ++i)
      last = AddKernel(built.graph, last, reinterpret_cast<void*>(Small), arguments);
  }
  CHECK(cudaGraphInstantiate(&built.executable, built.graph, 0));
  return built;
}

void Destroy(const Built& built) {
  CHECK(cudaGraphExecDestroy(built.executable));
  CHECK(cudaGraphDestroy(built.graph));
}

cudaStream_t NewStream(int priority = 0) {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority));
  return stream;
}

cudaEvent_t NewEvent() {
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

unsigned* NewCounter() {
  unsigned* counter;
  CHECK(cudaMalloc(&counter, sizeof(*counter)));
  return counter;
}

// Launches graphs in the order that the option names. A plain graph only waits for those with
// conditional nodes.
class Order {
 public:
  void Launch(cudaGraphExec_t executable, cudaStream_t stream, cudaEvent_t own, bool conditional) {
    const std::string& order = Option("order");
    if (order == "none") {
      CHECK(cudaGraphLaunch(executable, stream));
      return;
    }
    if (order == "idle" || order == "alone") {
      const std::lock_guard submits(g_idle);
      CHECK(cudaDeviceSynchronize());
      CHECK(cudaGraphLaunch(executable, stream));
      if (order == "alone") CHECK(cudaStreamSynchronize(stream));
      return;
    }
    const std::lock_guard lock(mutex_);
    if (shared_ == nullptr) shared_ = NewStream(Number("priority"));
    const cudaStream_t in = conditional && order == "stream" ? shared_ : stream;
    Behind(in, conditional_);
    if (conditional) {
      for (const auto& [plain, event] : plain_) Behind(in, event);
    }
    if (in != stream) {
      CHECK(cudaEventRecord(own, stream));
      CHECK(cudaStreamWaitEvent(in, own, 0));
    }
    CHECK(cudaGraphLaunch(executable, in));
    CHECK(cudaEventRecord(own, in));
    if (in != stream) CHECK(cudaStreamWaitEvent(stream, own, 0));
    if (conditional) {
      conditional_ = own;
    } else {
      plain_[stream] = own;
    }
  }

 private:
  static void Behind(cudaStream_t stream, cudaEvent_t event) {
    if (event == nullptr) return;
    if (Option("order") != "host") {
      CHECK(cudaStreamWaitEvent(stream, event, 0));
      return;
    }
    cudaError_t error;
    while ((error = cudaEventQuery(event)) == cudaErrorNotReady) {
    }
    CHECK(error);
  }

  std::mutex mutex_;
  cudaStream_t shared_ = nullptr;
  cudaEvent_t conditional_ = nullptr;
  std::map<cudaStream_t, cudaEvent_t> plain_;
};

// Of the conditional graphs' context, and of the other one.
Order g_orders[2];

void Graphs(bool conditional, CUcontext context) {
  CHECK(cuCtxSetCurrent(context));
  const cudaStream_t stream = NewStream(conditional ? Number("priority") : 0);
  const cudaEvent_t own = NewEvent();
  unsigned* const counter = NewCounter();
  const bool always = Option("build") == "always";
  const bool queued = conditional && Option("queued") == "yes";
  const bool writes = conditional && Option("writes") == "yes";
  Order& order = g_orders[!conditional && Option("orders") == "each"];
  const cudaStream_t before = NewStream();
  const cudaEvent_t short_end = NewEvent();
  CUdeviceptr word = 0;
  CHECK(cuMemAlloc(&word, sizeof(uint64_t)));
  Built built = Build(conditional, counter);
  for (long launch = 1; !g_stop; ++launch) {
    unsigned counted = 0;
    CHECK(cudaMemsetAsync(counter, 0, sizeof(*counter), stream));
    if (queued) {
      Short<<<1, 1, 0, before>>>();
      CHECK(cudaEventRecord(short_end, before));
      CHECK(cudaStreamWaitEvent(stream, short_end, 0));
    }
    order.Launch(built.executable, stream, own, conditional);
    if (writes) CHECK(cuStreamWriteValue64(stream, word, static_cast<uint64_t>(launch), 0));
    CHECK(cudaMemcpyAsync(&counted, counter, sizeof(counted), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    g_wrong += counted != static_cast<unsigned>(Number("rounds"));
    ++(conditional ? g_conditional : g_other);
    if (always && launch % 4 == 0) {
      Destroy(built);
      built = Build(conditional, counter);
    }
  }
}

void Kernels(CUcontext context) {
  CHECK(cuCtxSetCurrent(context));
  std::vector<cudaStream_t> streams;
  for (int i = 0; i < Number("streams"); ++i) streams.push_back(NewStream());
  unsigned* const counter = NewCounter();
  const int batch = Number("batch");
  while (!g_stop) {
    for (const cudaStream_t stream : streams) {
      const std::shared_lock submits(g_idle);
      for (int i = 0; i < batch; ++i) Small<<<4, 32, 0, stream>>>(counter, Clocks());
      CHECK(cudaMemsetAsync(counter, 0, sizeof(*counter), stream));
    }
    for (const cudaStream_t stream : streams) CHECK(cudaStreamSynchronize(stream));
    g_other += batch * static_cast<long>(streams.size());
  }
}

constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry nothing() { ret; }
)";

void Calls(CUcontext context) {
  CHECK(cuCtxSetCurrent(context));
  constexpr size_t kBytes = 4 << 20, kPage = 2 << 20;
  const std::string& calls = Option("calls");
  const cudaStream_t stream = NewStream();
  unsigned* const counter = NewCounter();
  void* const memory = std::aligned_alloc(4096, kBytes);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr range = 0;
  uint64_t number = 0;
  volatile uint64_t* word = nullptr;
  CHECK(cudaHostAlloc(const_cast<uint64_t**>(&word), sizeof(*word), cudaHostAllocMapped));
  *word = 0;
  CHECK(cuMemAddressReserve(&range, kPage, 0, 0, 0));
  while (!g_stop) {
    if (calls == "register") {
      CHECK(cudaHostRegister(memory, kBytes, cudaHostRegisterDefault));
      CHECK(cudaHostUnregister(memory));
    } else if (calls == "pinned") {
      void* pinned;
      CHECK(cudaMallocHost(&pinned, kBytes));
      CHECK(cudaFreeHost(pinned));
    } else if (calls == "map") {
      CUmemGenericAllocationHandle handle;
      CHECK(cuMemCreate(&handle, kPage, &properties, 0));
      CHECK(cuMemMap(range, kPage, 0, handle, 0));
      CHECK(cuMemSetAccess(range, kPage, &access, 1));
      CHECK(cuMemUnmap(range, kPage));
      CHECK(cuMemRelease(handle));
    } else if (calls == "load") {
      CUmodule module;
      CUfunction function;
      CHECK(cuModuleLoadData(&module, kPtx));
      CHECK(cuModuleGetFunction(&function, module, "nothing"));
      CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
      CHECK(cudaStreamSynchronize(stream));
      CHECK(cuModuleUnload(module));
    } else if (calls == "instantiate") {
      Destroy(Build(/*conditional=*/false, counter));
    } else if (calls == "streams") {
      CHECK(cudaStreamDestroy(NewStream()));
    } else if (calls == "limit") {
      CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024 * (1 + ++number % 8)));
    } else if (calls == "hold") {
      Small<<<1, 1, 0, stream>>>(counter, 400'000);
      CHECK(cuStreamWriteValue64(stream, reinterpret_cast<CUdeviceptr>(word), ++number, 0));
      while (*word != number) {
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    const auto option = g_options.find(word.substr(0, equals));
    if (equals == std::string::npos || option == g_options.end()) {
      std::fprintf(stderr, "conditional_graphs: unknown option '%s'. The options are:", argv[i]);
      for (const auto& [name, value] : g_options)
        std::fprintf(stderr, " %s=%s", name.c_str(), value.c_str());
      std::fputc('\n', stderr);
      return 2;
    }
    option->second = word.substr(equals + 1);
  }
  CHECK(cudaFree(nullptr));
  CUcontext context = nullptr, own = nullptr;
  CHECK(cuCtxGetCurrent(&context));
  own = context;
  if (Number("contexts") == 2) {
    CUctxCreateParams params{};
    CHECK(cuCtxCreate(&own, &params, 0, 0));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < Number("threads"); ++i) threads.emplace_back(Graphs, true, own);
  for (int i = 0; i < Number("graphs"); ++i) threads.emplace_back(Graphs, false, context);
  for (int i = 0; i < Number("kernels"); ++i)
    threads.emplace_back(Kernels, i < Number("near") ? own : context);
  threads.emplace_back(Calls, context);
  std::this_thread::sleep_for(std::chrono::duration<double>(std::atof(Option("seconds").c_str())));
  g_stop = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("%s   %9ld %9ld\n", g_wrong == 0 ? "lives" : "WRONG", g_conditional.load(),
              g_other.load());
  return g_wrong == 0 ? 0 : 1;
}
