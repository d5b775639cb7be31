// One process of a soak: an unmodified CUDA program that works until it is told to stop or is
// killed, or that attacks the daemon.
//
//   soak_worker reference SEED ROUNDS  computes ROUNDS rounds on the CPU alone; prints
//                                      "ROUNDS DIGEST"
//   soak_worker survive SEED           runs rounds until SIGTERM; then prints "ROUNDS DIGEST"
//   soak_worker turn SEED ROUNDS       runs ROUNDS rounds; then prints "ROUNDS DIGEST"
//   soak_worker KIND SEED              prints "ready", then repeats one kind of call until it is
//                                      killed: copy, launch, allocate, module, fork
//   soak_worker attack SEED            runs a round; then overwrites, truncates or unlinks the
//                                      files that it shares with the daemon, and continues
//
// Exits with 1 when a call fails, and with 3 when a result differs from the CPU's.
#include <cuda.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define CHECK(call)                                                                    \
  do {                                                                                 \
    const cudaError_t result = (call);                                                 \
    if (result != cudaSuccess) {                                                       \
      std::fprintf(stderr, "soak: line %d: %s\n", __LINE__, cudaGetErrorName(result)); \
      std::exit(1);                                                                    \
    }                                                                                  \
  } while (false)

namespace {

constexpr int kThreads = 128;

// A kernel that adds 3 to every word. Rounds load and unload it at run time.
constexpr char kModule[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry add3(.param .u64 values, .param .u32 count)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [values];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd2, %r5, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r6, [%rd3];
  add.s32 %r7, %r6, 3;
  st.global.u32 [%rd3], %r7;
DONE:
  ret;
}
)";

__host__ __device__ uint32_t Mix(uint32_t x, uint32_t i, uint32_t salt) {
  x = x * 1664525u + 1013904223u + (i ^ salt);
  return x ^ (x >> 13);
}

__global__ void MixAll(uint32_t* values, uint32_t count, uint32_t salt) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = Mix(values[i], i, salt);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint32_t Next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<uint32_t>(state_ >> 16);
  }
  uint32_t Below(uint32_t bound) { return Next() % bound; }

 private:
  uint64_t state_;
};

// The work of one round. Only the seed and the round's number determine it.
struct Round {
  Round(uint64_t seed, uint64_t number) : random(seed * 1000003 + number) {
    values.resize(256 + random.Below(8192));
    for (uint32_t& value : values) value = random.Next();
    launches = 1 + random.Below(4);
    salt = random.Next();
    pinned = number % 5 == 1;
    graph = number % 7 == 2;
    module = number % 11 == 3;
  }
  std::vector<uint32_t> OnCpu() const {
    std::vector<uint32_t> expected = values;
    for (uint32_t i = 0; i < expected.size(); ++i) {
      for (uint32_t l = 0; l < launches; ++l) expected[i] = Mix(expected[i], i, salt + l);
      if (module) expected[i] += 3;
    }
    return expected;
  }

  Random random;
  std::vector<uint32_t> values;
  uint32_t launches = 0, salt = 0;
  bool pinned = false, graph = false, module = false;
};

uint64_t Digest(uint64_t digest, const std::vector<uint32_t>& values) {
  for (const uint32_t value : values) digest = (digest ^ value) * 0x100000001B3u;
  return digest;
}

template <typename Function>
Function* Driver(const char* name) {
  void* function = nullptr;
  CHECK(cudaGetDriverEntryPointByVersion(name, &function, CUDART_VERSION, cudaEnableDefault));
  if (function == nullptr) std::exit(1);
  return reinterpret_cast<Function*>(function);
}

void DriverCheck(CUresult result, int line) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "soak: line %d: CUDA error %d\n", line, static_cast<int>(result));
  std::exit(1);
}

void RunModule(uint32_t* values, uint32_t count, cudaStream_t stream) {
  static const auto load = Driver<decltype(cuModuleLoadData)>("cuModuleLoadData");
  static const auto get = Driver<decltype(cuModuleGetFunction)>("cuModuleGetFunction");
  static const auto launch = Driver<decltype(cuLaunchKernel)>("cuLaunchKernel");
  static const auto unload = Driver<decltype(cuModuleUnload)>("cuModuleUnload");
  CUmodule module;
  CUfunction function;
  DriverCheck(load(&module, kModule), __LINE__);
  DriverCheck(get(&function, module, "add3"), __LINE__);
  void* parameters[] = {&values, &count};
  const uint32_t blocks = (count + kThreads - 1) / kThreads;
  DriverCheck(launch(function, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters, nullptr),
              __LINE__);
  CHECK(cudaStreamSynchronize(stream));
  DriverCheck(unload(module), __LINE__);
}

std::vector<uint32_t> OnGpu(const Round& round) {
  const uint32_t count = static_cast<uint32_t>(round.values.size());
  const size_t bytes = count * sizeof(uint32_t);
  const uint32_t blocks = (count + kThreads - 1) / kThreads;
  cudaStream_t stream;
  cudaEvent_t event;
  uint32_t* device = nullptr;
  uint32_t* host = nullptr;
  std::vector<uint32_t> result = round.values;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CHECK(cudaMalloc(&device, bytes));
  if (round.pinned) {
    CHECK(cudaMallocHost(&host, bytes));
    std::memcpy(host, result.data(), bytes);
  }
  uint32_t* const side = round.pinned ? host : result.data();
  CHECK(cudaMemcpyAsync(device, side, bytes, cudaMemcpyHostToDevice, stream));
  const auto launch = [&] {
    for (uint32_t l = 0; l < round.launches; ++l)
      MixAll<<<blocks, kThreads, 0, stream>>>(device, count, round.salt + l);
    CHECK(cudaGetLastError());
  };
  if (round.graph) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
  } else {
    launch();
  }
  if (round.module) RunModule(device, count, stream);
  CHECK(cudaMemcpyAsync(side, device, bytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaEventSynchronize(event));
  if (round.pinned) {
    std::memcpy(result.data(), host, bytes);
    CHECK(cudaFreeHost(host));
  }
  CHECK(cudaFree(device));
  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(stream));
  return result;
}

volatile sig_atomic_t g_stop = 0;

// Runs `last` rounds, or as many as it can until SIGTERM.
int Rounds(uint64_t seed, uint64_t last, int pause_us) {
  signal(SIGTERM, [](int) { g_stop = 1; });
  uint64_t digest = 0xCBF29CE484222325u, number = 0;
  for (; number < last && g_stop == 0; ++number) {
    const Round round(seed, number);
    const std::vector<uint32_t> result = OnGpu(round);
    if (result != round.OnCpu()) {
      std::fprintf(stderr, "soak: seed %llu: round %llu differs\n",
                   static_cast<unsigned long long>(seed), static_cast<unsigned long long>(number));
      return 3;
    }
    digest = Digest(digest, result);
    if (number == 0) {
      std::printf("ready\n");
      std::fflush(stdout);
    }
    if (pause_us > 0) usleep(static_cast<useconds_t>(pause_us));
  }
  std::printf("%llu %016llx\n", static_cast<unsigned long long>(number),
              static_cast<unsigned long long>(digest));
  return 0;
}

int Reference(uint64_t seed, uint64_t rounds) {
  uint64_t digest = 0xCBF29CE484222325u;
  for (uint64_t number = 0; number < rounds; ++number)
    digest = Digest(digest, Round(seed, number).OnCpu());
  std::printf("%llu %016llx\n", static_cast<unsigned long long>(rounds),
              static_cast<unsigned long long>(digest));
  return 0;
}

// ---- workers that are killed

void Ready() {
  std::printf("ready\n");
  std::fflush(stdout);
}

[[noreturn]] void Copy(Random& random) {
  std::vector<char> host(4 << 20);
  char* device = nullptr;
  CHECK(cudaMalloc(&device, host.size()));
  Ready();
  for (;;) {
    const size_t bytes = 1 + random.Below(static_cast<uint32_t>(host.size() - 1));
    CHECK(cudaMemcpy(device, host.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost));
  }
}

[[noreturn]] void Launch() {
  constexpr uint32_t kCount = 4096;
  uint32_t* device = nullptr;
  CHECK(cudaMalloc(&device, kCount * sizeof(uint32_t)));
  Ready();
  for (uint32_t i = 0;; ++i) {
    MixAll<<<kCount / kThreads, kThreads>>>(device, kCount, i);
    CHECK(cudaGetLastError());
    if (i % 64 == 0) CHECK(cudaDeviceSynchronize());
  }
}

[[noreturn]] void Allocate(Random& random) {
  CHECK(cudaFree(nullptr));
  Ready();
  for (;;) {
    void *device = nullptr, *pinned = nullptr;
    CHECK(cudaMalloc(&device, 1 + random.Below(2 << 20)));
    CHECK(cudaMallocHost(&pinned, 1 + random.Below(1 << 20)));
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(pinned));
  }
}

[[noreturn]] void LoadModules() {
  constexpr uint32_t kCount = 256;
  uint32_t* device = nullptr;
  CHECK(cudaMalloc(&device, kCount * sizeof(uint32_t)));
  Ready();
  for (;;) RunModule(device, kCount, nullptr);
}

[[noreturn]] void Fork(uint64_t seed) {
  OnGpu(Round(seed, 0));
  Ready();
  for (;;) {
    const pid_t child = fork();
    if (child == 0) {
      usleep(3000);
      _exit(0);
    }
    OnGpu(Round(seed, 1));
    waitpid(child, nullptr, 0);
  }
}

// ---- workers that attack

struct SharedFile {
  std::string path;
  char* begin = nullptr;
  size_t bytes = 0;
};

// The files of the session's directory that the shim has mapped for writing.
std::vector<SharedFile> SharedFiles() {
  std::vector<SharedFile> files;
  FILE* const maps = std::fopen("/proc/self/maps", "r");
  char line[4096];
  while (maps != nullptr && std::fgets(line, sizeof(line), maps) != nullptr) {
    unsigned long begin = 0, end = 0;
    char rights[8] = "";
    const char* const path = std::strchr(line, '/');
    if (std::sscanf(line, "%lx-%lx %7s", &begin, &end, rights) != 3 || path == nullptr) continue;
    if (std::strstr(path, "/sessions/") == nullptr || rights[1] != 'w') continue;
    SharedFile& file = files.emplace_back();
    file.path.assign(path, std::strcspn(path, "\n"));
    file.begin = reinterpret_cast<char*>(begin);
    file.bytes = end - begin;
  }
  if (maps != nullptr) std::fclose(maps);
  return files;
}

int Attack(uint64_t seed) {
  Random random(seed);
  OnGpu(Round(seed, 0));
  Ready();
  const std::vector<SharedFile> files = SharedFiles();
  if (files.empty()) {
    std::fprintf(stderr, "soak: there is nothing to attack\n");
    return 1;
  }
  // Kernels' output comes through such a file, too. After some attacks it is gigabytes.
  const int nowhere = open("/dev/null", O_WRONLY);
  dup2(nowhere, STDOUT_FILENO);
  const uint32_t way = random.Below(4);
  uint32_t* device = nullptr;
  (void)cudaMalloc(&device, 4096);
  for (int i = 0; i < 200; ++i) {
    const SharedFile& file = files[random.Below(static_cast<uint32_t>(files.size()))];
    if (way == 0) {  // words anywhere
      for (int w = 0; w < 64; ++w)
        std::memset(file.begin + random.Next() % (file.bytes - 8), static_cast<int>(random.Next()),
                    8);
    } else if (way == 1) {  // the beginning, which holds counters, states and records
      const size_t bytes = file.bytes < 65536 ? file.bytes : 65536;
      for (size_t at = 0; at + 4 <= bytes; at += 4 + 4 * random.Below(16)) {
        const uint32_t word = random.Next();
        std::memcpy(file.begin + at, &word, sizeof(word));
      }
    } else if (way == 2) {
      (void)!truncate(file.path.c_str(), random.Below(2) == 0 ? 0 : 4096);
    } else {
      (void)unlink(file.path.c_str());
    }
    MixAll<<<8, kThreads>>>(device, 1024, 1);
    (void)cudaDeviceSynchronize();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 2 ? argv[1] : "";
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  const uint64_t rounds = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
  Random random(seed);
  if (kind == "reference") return Reference(seed, rounds);
  if (kind == "survive") return Rounds(seed, UINT64_MAX, 50'000);
  if (kind == "turn") return Rounds(seed, rounds, 0);
  if (kind == "copy") Copy(random);
  if (kind == "launch") Launch();
  if (kind == "allocate") Allocate(random);
  if (kind == "module") LoadModules();
  if (kind == "fork") Fork(seed);
  if (kind == "attack") return Attack(seed);
  std::fprintf(stderr, "soak_worker KIND SEED [ROUNDS]; see the source\n");
  return 2;
}
