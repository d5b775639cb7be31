#include "server/backends/cuda/host_registry.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>

#include "coroutine_runtime/clock.h"
#include "server/backends/cuda/graph_gate.h"
#include "tests/server/backends/cuda/stand_in_session.h"

namespace detshare::cuda {
namespace {

std::atomic<int> g_registered{0};

DriverApi DriverThatRegisters() {
  DriverApi api = StandInDriver();
  api.cuMemHostRegister = [](void*, size_t, unsigned) {
    ++g_registered;
    return CUDA_SUCCESS;
  };
  api.cuMemHostGetDevicePointer = [](CUdeviceptr* address, void* memory, unsigned) {
    *address = reinterpret_cast<CUdeviceptr>(memory);
    return CUDA_SUCCESS;
  };
  api.cuMemHostUnregister = [](void*) {
    --g_registered;
    return CUDA_SUCCESS;
  };
  return api;
}

// On the first of two GPUs that have gates.
struct RegisteringSession : StandInSession {
  ManualClock clock;
  SliceWords words, other_words;
  CudaContext other{api, 1, nullptr};
  alignas(4096) char memory[4096];

  RegisteringSession() : StandInSession(DriverThatRegisters()) {
    g_registered = 0;
    context.graph_gate = std::make_unique<GraphGate>(words, nullptr, 0, clock);
    other.graph_gate = std::make_unique<GraphGate>(other_words, nullptr, 1, clock);
    registry.AddGpu(context);
    registry.AddGpu(other);
  }
  ~RegisteringSession() {
    registry.RemoveGpu(other);
    registry.RemoveGpu(context);
  }
};

TEST_CASE_METHOD(RegisteringSession,
                 "Memory is registered apart from the graphs of all GPUs that see it") {
  GraphGate& gate = GENERATE(true, false) ? *other.graph_gate : *context.graph_gate;
  REQUIRE(gate.Enter(0));
  absl::Status status;
  std::thread registers(
      [&] { status = registry.Register(*space, context, reclaimer, memory, sizeof(memory)); });
  // Gives the thread time for what should wait.
  for (int i = 0; i < 200; ++i) std::this_thread::yield();
  CHECK(g_registered == 0);
  gate.Leave();
  registers.join();
  CHECK(status.ok());
  CHECK(g_registered == 1);
  REQUIRE(gate.Enter(0));
  registry.Unregister(context, reclaimer, memory, sizeof(memory));
  for (int i = 0; i < 200; ++i) std::this_thread::yield();
  CHECK(g_registered == 1);
  gate.Leave();
  while (g_registered != 0) std::this_thread::yield();
}

TEST_CASE_METHOD(RegisteringSession, "Graphs of a GPU that is gone keep nobody waiting") {
  registry.RemoveGpu(other);
  REQUIRE(other.graph_gate->Enter(0));
  CHECK(registry.Register(*space, context, reclaimer, memory, sizeof(memory)).ok());
  CHECK(g_registered == 1);
}

}  // namespace
}  // namespace detshare::cuda
