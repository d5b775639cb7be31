// Random programs of streams, events, copies, fills and kernels. They must give the same bytes as
// when their operations run one after the other: under every policy, beside a neighbour, when every
// operation runs on other SMs than the one before, and when the session changes its time-slice
// group.
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "coroutine_runtime/device_scheduler.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "policy/registry.h"
#include "server/backends/soft/soft_device.h"
#include "tests/server/backends/soft/test_addresses.h"

namespace detshare {
namespace {

constexpr int kPrograms = 10'000;
constexpr int kStreams = 3, kBuffers = 4, kSteps = 10;
constexpr uint32_t kWords = 48;
constexpr uint64_t kBufferBytes = 512;

// to[i] = to[i] * 1664525 + from[(i + k) % n] ^ k
constexpr char kCode[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry mix(.param .u64 p_to, .param .u64 p_from, .param .u32 p_k, .param .u32 p_n) {
  .reg .pred %p;
  .reg .u32 %i, %c, %b, %t, %k, %n, %j, %x, %y;
  .reg .u64 %to, %from, %o;
  ld.param.u64 %to, [p_to];
  ld.param.u64 %from, [p_from];
  ld.param.u32 %k, [p_k];
  ld.param.u32 %n, [p_n];
  mov.u32 %c, %ctaid.x;
  mov.u32 %b, %ntid.x;
  mov.u32 %t, %tid.x;
  mad.lo.u32 %i, %c, %b, %t;
  setp.ge.u32 %p, %i, %n;
  @%p ret;
  add.u32 %j, %i, %k;
  rem.u32 %j, %j, %n;
  mul.wide.u32 %o, %j, 4;
  add.u64 %from, %from, %o;
  ld.global.u32 %y, [%from];
  mul.wide.u32 %o, %i, 4;
  add.u64 %to, %to, %o;
  ld.global.u32 %x, [%to];
  xor.b32 %y, %y, %k;
  mad.lo.u32 %x, %x, 1664525, %y;
  st.global.u32 [%to], %x;
  ret;
}
)";

using Memory = std::array<std::array<uint32_t, kWords>, kBuffers>;

struct Step {
  enum Kind { kMix, kCopy, kFill } kind = kMix;
  int stream = 0, to = 0, from = 0;
  uint32_t k = 0;
};

// Streams 0 and 1 block with the legacy default stream, which is the last stream.
std::vector<Step> MakeProgram(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Step> steps(kSteps);
  for (Step& step : steps) {
    step.kind = static_cast<Step::Kind>(random() % 4 % 3);
    step.stream = static_cast<int>(random() % (kStreams + 1));
    step.to = static_cast<int>(random() % kBuffers);
    step.from = static_cast<int>((step.to + 1 + random() % (kBuffers - 1)) % kBuffers);
    step.k = random() % 1000;
  }
  return steps;
}

void Apply(const Step& step, Memory& memory) {
  auto& to = memory[step.to];
  const auto& from = memory[step.from];
  switch (step.kind) {
    case Step::kMix:
      for (uint32_t i = 0; i < kWords; ++i)
        to[i] = to[i] * 1664525u + (from[(i + step.k) % kWords] ^ step.k);
      break;
    case Step::kCopy:
      to = from;
      break;
    case Step::kFill:
      to.fill(step.k);
      break;
  }
}

Memory Expected(unsigned seed) {
  Memory memory{};
  for (const Step& step : MakeProgram(seed)) Apply(step, memory);
  return memory;
}

// May be called on any thread, unlike Catch's assertions.
void Must(bool ok) {
  if (!ok) std::abort();
}

// A session on the software GPU.
class ProgramSession {
 public:
  ProgramSession(Device& device, QueuePool& pool, uint64_t index)
      : space_(*device.CreateAddressSpace(soft::TestBase(index), soft::kTestSpaceBytes)) {
    coroutine_ = *GpuCoroutine::Create(device, *space_, pool, parking_);
    for (int stream = 0; stream <= kStreams; ++stream) {
      StreamOptions options;
      options.legacy_default = stream == kStreams;
      options.non_blocking = stream == 2;
      REQUIRE(coroutine_->CreateStream(Id(stream), 1, options).ok());
    }
    for (EventId event = 1; event <= kSteps; ++event)
      REQUIRE(coroutine_->CreateEvent(event, 1, false).ok());
    REQUIRE(space_->Map(space_->base(), kBufferBytes * kBuffers).ok());
    CompileLogs logs;
    library_ = *device.LoadLibrary(
        *space_, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(kCode), sizeof(kCode)), {},
        logs, nullptr);
    kernel_ = *library_->GetKernel("mix");
    kernel_->set_code(1);
  }
  ~ProgramSession() {
    Finish();
    library_.reset();
    space_.reset();
  }
  GpuCoroutine& coroutine() { return *coroutine_; }
  AddressSpace& space() { return *space_; }

  // Calls `before_step` before each step.
  Memory Run(
      unsigned seed, const std::function<void()>& before_step = [] {}) {
    std::memset(Words(0), 0, kBufferBytes * kBuffers);
    // The last stream that used a buffer, and how. Streams wait for each other only where they
    // must.
    struct Use {
      int stream = -1;
      EventId event = 0;
    };
    std::array<std::vector<Use>, kBuffers> reads;
    std::array<Use, kBuffers> writes;
    EventId event = 0;
    for (const Step& step : MakeProgram(seed)) {
      before_step();
      WaitForRoom();
      const auto wait = [&](const Use& use) {
        if (use.stream >= 0 && use.stream != step.stream)
          Must(coroutine_->WaitEvent(Id(step.stream), use.event).ok());
      };
      wait(writes[step.to]);
      for (const Use& use : reads[step.to]) wait(use);
      if (step.kind != Step::kFill) wait(writes[step.from]);
      Submit(step);
      Must(coroutine_->RecordEvent(++event, Id(step.stream), nullptr, 0).ok());
      writes[step.to] = {step.stream, event};
      reads[step.to].clear();
      if (step.kind != Step::kFill) reads[step.from].push_back({step.stream, event});
      coroutine_->WatchWork(false);
    }
    Finish();
    Memory memory;
    for (int i = 0; i < kBuffers; ++i) std::memcpy(memory[i].data(), Words(i), sizeof(memory[i]));
    return memory;
  }

 private:
  static StreamId Id(int stream) { return static_cast<StreamId>(stream) + 1; }
  DeviceAddress Address(int buffer) { return space_->base() + kBufferBytes * buffer; }
  // The software GPU's memory belongs to this process.
  void* Words(int buffer) { return reinterpret_cast<void*>(Address(buffer)); }

  void WaitForRoom() {
    while (!coroutine_->MayRun() && !coroutine_->Throttle()) {
      coroutine_->WatchWork(false);
      std::this_thread::yield();
    }
  }
  void Submit(const Step& step) {
    switch (step.kind) {
      case Step::kMix: {
        LaunchShape shape;
        shape.grid.x = 3;
        shape.block.x = 16;
        struct {
          uint64_t to, from;
          uint32_t k, n;
        } parameters = {Address(step.to), Address(step.from), step.k, kWords};
        const auto* bytes = reinterpret_cast<const std::byte*>(&parameters);
        Must(coroutine_
                 ->Launch(Id(step.stream), *kernel_, shape,
                          absl::MakeConstSpan(bytes, sizeof(parameters)))
                 .ok());
        break;
      }
      case Step::kCopy: {
        CopyRequest copy;
        copy.destination = Address(step.to);
        copy.source = Address(step.from);
        copy.width = kWords * 4;
        Must(coroutine_->Copy(Id(step.stream), copy).ok());
        break;
      }
      case Step::kFill: {
        FillRequest fill;
        fill.address = Address(step.to);
        fill.width = kWords;
        fill.element_bytes = 4;
        fill.value = step.k;
        Must(coroutine_->Fill(Id(step.stream), fill).ok());
        break;
      }
    }
  }
  void Finish() {
    Must(coroutine_->SignalContext(1, &fence_, ++signalled_).ok());
    while (fence_.load(std::memory_order_acquire) < signalled_) {
      coroutine_->WatchWork(false);
      std::this_thread::yield();
    }
    coroutine_->WatchWork(true);
  }

  Executor executor_;
  Parking parking_{executor_};
  std::unique_ptr<GpuCoroutine> coroutine_;  // destroyed after the space
  std::unique_ptr<AddressSpace> space_;
  std::unique_ptr<Library> library_;
  Kernel* kernel_ = nullptr;
  std::atomic<uint64_t> fence_{0};
  uint64_t signalled_ = 0;
};

TEST_CASE(
    "Random programs give the same bytes under every policy, and when every operation moves") {
  const std::vector<std::string> policies = policy::PolicyNames();
  const unsigned ways = static_cast<unsigned>(policies.size()) + 1;
  const RealClock clock;
  uint64_t migrations = 0;
  for (unsigned way = 0; way < ways; ++way) {
    const bool moving = way == policies.size();
    const std::string name = moving ? "whole" : policies[way];
    INFO((moving ? "every operation moves" : name));
    soft::SoftDeviceOptions soft;
    soft.sm_count = 16;
    soft.sm_group = 2;
    soft.total_memory = 64 << 20;
    soft.worker_threads = 2;
    soft.log = [](std::string_view) {};
    const std::unique_ptr<Device> device = *soft::CreateSoftDevice(soft);
    policy::Tenant latency, batch;
    latency.name = "latency";
    latency.tenant_class = policy::TenantClass::kLatency;
    batch.name = "batch";
    batch.tenant_class = policy::TenantClass::kBatch;
    DeviceScheduler::Options options;
    options.migrate_every = moving ? 1 : 0;
    const auto scheduler = *DeviceScheduler::Create(*device, *policy::CreatePolicy(name, {}),
                                                    {latency, batch}, clock, options);
    QueuePool pool(*device);

    std::atomic<bool> stop{false};
    std::atomic<bool> neighbour_right{true};
    // The neighbour is a session with its own thread. It goes first under policies that let a
    // session go first.
    std::thread neighbour;
    ProgramSession other(*device, pool, 1);
    scheduler->Add(1, "latency", other.coroutine());
    ProgramSession session(*device, pool, 2);
    scheduler->Add(2, "batch", session.coroutine());
    neighbour = std::thread([&] {
      for (unsigned seed = 1'000'000; !stop; ++seed) {
        if (other.Run(seed) != Expected(seed)) neighbour_right = false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    unsigned wrong = 0;
    for (unsigned seed = way; seed < kPrograms; seed += ways) {
      if (session.Run(seed) == Expected(seed)) continue;
      if (++wrong > 3) break;
      UNSCOPED_INFO("program " << seed << " differs");
    }
    stop = true;
    neighbour.join();
    CHECK(wrong == 0);
    CHECK(neighbour_right);
    if (moving) migrations = session.coroutine().counters().migrations;
    scheduler->Remove(1, other.coroutine());
    scheduler->Remove(2, session.coroutine());
  }
  CHECK(migrations > kPrograms / ways * kSteps);
}

TEST_CASE("Random programs give the same bytes while sessions change their time-slice group") {
  // A session begins, changes its group often, and is bound to one of the groups at last.
  constexpr unsigned kSessions = 8, kUntilBound = 150, kEach = 200;
  const RealClock clock;
  soft::SoftDeviceOptions soft;
  soft.sm_count = 16;
  soft.sm_group = 2;
  soft.total_memory = 64 << 20;
  soft.worker_threads = 2;
  soft.log = [](std::string_view) {};
  const std::unique_ptr<Device> device = *soft::CreateSoftDevice(soft);
  REQUIRE(device->urgent() != nullptr);
  policy::Tenant changing, other;
  changing.name = "changing";
  other.name = "other";
  other.tenant_class = policy::TenantClass::kBatch;
  const auto scheduler = *DeviceScheduler::Create(*device, *policy::CreatePolicy("priority", {}),
                                                  {changing, other}, clock, {});
  QueuePool pool(*device);
  ProgramSession neighbour(*device, pool, 1);
  scheduler->Add(1, "other", neighbour.coroutine());
  std::atomic<bool> stop{false};
  std::atomic<bool> neighbour_right{true};
  std::thread beside([&] {
    for (unsigned seed = 1'000'000; !stop; ++seed) {
      if (neighbour.Run(seed) != Expected(seed)) neighbour_right = false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::mt19937 random(7);
  unsigned wrong = 0;
  std::array<int, 2> steps{}, bound_in{};  // in the ordinary and in the urgent group
  for (unsigned index = 0; index < kSessions; ++index) {
    ProgramSession session(*device, pool, 2 + index);
    scheduler->Add(2 + index, "changing", session.coroutine());
    const auto change = [&] {
      ++steps[session.space().urgent()];
      if (random() % 4 != 0) return;
      const bool urgent = random() % 2 == 0;
      changing.tenant_class = urgent ? policy::TenantClass::kLatency : policy::TenantClass::kBatch;
      Must(scheduler->SetTenants({changing, other}).ok());
    };
    for (unsigned i = 0; i < kEach; ++i) {
      const unsigned seed = index * kEach + i;
      if (i == kUntilBound) {
        session.space().BindToGroup();
        ++bound_in[session.space().urgent()];
      }
      const bool group = session.space().urgent();
      wrong += session.Run(seed, change) != Expected(seed);
      if (i >= kUntilBound) CHECK(session.space().urgent() == group);
    }
    CHECK(session.coroutine().counters().migrations > kUntilBound);
    scheduler->Remove(2 + index, session.coroutine());
  }
  stop = true;
  beside.join();
  CHECK(wrong == 0);
  CHECK(neighbour_right);
  for (const int in_group : steps) CHECK(in_group > 1000);
  CHECK(bound_in[0] + bound_in[1] == kSessions);
  CHECK(bound_in[0] > 0);
  CHECK(bound_in[1] > 0);
  scheduler->Remove(1, neighbour.coroutine());
}

}  // namespace
}  // namespace detshare
