// Host functions and callbacks in streams. They run after the stream's earlier work and hold back
// its later work. The host sees what the device wrote before.
#include <mutex>
#include <string>

#include "check.h"

constexpr int kCount = 4096;

__global__ void Step(unsigned* x, unsigned add, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = x[i] * 5 + add;
}

struct Log {
  std::mutex mutex;
  std::vector<std::string> lines;
  void Add(const std::string& line) {
    std::lock_guard<std::mutex> lock(mutex);
    lines.push_back(line);
  }
};

struct Note {
  Log* log;
  const char* name;
  const unsigned* seen;  // host memory that an earlier copy fills, or null
  unsigned* change;      // host memory for a later copy to read, or null
};

void CUDART_CB Write(void* data) {
  auto* note = static_cast<Note*>(data);
  std::string line = note->name;
  if (note->seen != nullptr) {
    char text[40];
    std::snprintf(text, sizeof text, " %016llx",
                  static_cast<unsigned long long>(check::Digest(note->seen, kCount)));
    line += text;
  }
  if (note->change != nullptr) {
    for (int i = 0; i < kCount; ++i) note->change[i] = i * 11 + 1;
  }
  note->log->Add(line);
}

void CUDART_CB WriteStatus(cudaStream_t, cudaError_t status, void* data) {
  auto* note = static_cast<Note*>(data);
  note->log->Add(std::string(note->name) + " " + cudaGetErrorName(status));
}

int main() {
  Log log;
  cudaStream_t first, second;
  cudaEvent_t event;
  CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  unsigned *in = nullptr, *out = nullptr, *device = nullptr;
  CHECK(cudaMallocHost(&in, kCount * sizeof(unsigned)));
  CHECK(cudaMallocHost(&out, kCount * sizeof(unsigned)));
  CHECK(cudaMalloc(&device, kCount * sizeof(unsigned)));
  std::memset(in, 0, kCount * sizeof(unsigned));

  // The first function makes the data for the next copy. The second function reads the data that
  // came back.
  Note make{&log, "make", nullptr, in}, inspect{&log, "inspect", out, nullptr};
  Note status{&log, "callback", nullptr, nullptr}, last{&log, "last", out, nullptr};
  Note elsewhere{&log, "elsewhere", nullptr, nullptr};
  CHECK(cudaLaunchHostFunc(first, Write, &make));
  CHECK(cudaMemcpyAsync(device, in, kCount * sizeof(unsigned), cudaMemcpyHostToDevice, first));
  Step<<<kCount / 128, 128, 0, first>>>(device, 3, kCount);
  CHECK(cudaMemcpyAsync(out, device, kCount * sizeof(unsigned), cudaMemcpyDeviceToHost, first));
  CHECK(cudaLaunchHostFunc(first, Write, &inspect));
  CHECK(cudaStreamAddCallback(first, WriteStatus, &status, 0));
  CHECK(cudaEventRecord(event, first));
  // The second stream starts after the first stream's callback.
  CHECK(cudaStreamWaitEvent(second, event, 0));
  CHECK(cudaLaunchHostFunc(second, Write, &elsewhere));
  Step<<<kCount / 128, 128, 0, second>>>(device, 4, kCount);
  CHECK(cudaMemcpyAsync(out, device, kCount * sizeof(unsigned), cudaMemcpyDeviceToHost, second));
  CHECK(cudaLaunchHostFunc(second, Write, &last));
  CHECK(cudaGetLastError());
  CHECK(cudaStreamSynchronize(second));

  for (const std::string& line : log.lines) std::printf("%s\n", line.c_str());
  std::vector<unsigned> want(kCount);
  for (int i = 0; i < kCount; ++i) want[i] = (i * 11 + 1) * 5 + 3;
  char text[64];
  std::vector<std::string> lines = {"make"};
  auto digest = [&](const char* name) {
    std::snprintf(text, sizeof text, "%s %016llx", name,
                  static_cast<unsigned long long>(check::Digest(want.data(), kCount)));
    lines.push_back(text);
  };
  digest("inspect");
  lines.push_back("callback cudaSuccess");
  lines.push_back("elsewhere");
  for (unsigned& value : want) value = value * 5 + 4;
  digest("last");
  REQUIRE(log.lines == lines);
  check::Compare("result", out, want.data(), kCount);

  // Many functions of one stream run one after the other, in order.
  struct Turn {
    int* counter;
    int expected;
    int wrong;
  };
  int counter = 0;
  std::vector<Turn> turns(200);
  for (int i = 0; i < 200; ++i) {
    turns[i] = {&counter, i, 0};
    CHECK(cudaLaunchHostFunc(
        first,
        [](void* data) {
          auto* turn = static_cast<Turn*>(data);
          turn->wrong = *turn->counter != turn->expected;
          ++*turn->counter;
        },
        &turns[i]));
  }
  CHECK(cudaStreamSynchronize(first));
  REQUIRE(counter == 200);
  for (const Turn& turn : turns) REQUIRE(turn.wrong == 0);

  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(first));
  CHECK(cudaStreamDestroy(second));
  CHECK(cudaFreeHost(in));
  CHECK(cudaFreeHost(out));
  CHECK(cudaFree(device));
  return check::Ok();
}
