// Tests the backend of real GPUs on a real GPU. Without a driver every case passes with a warning.
//
// The case [.fault] ends the GPU's context for the whole process. So it is hidden and must be run
// alone.
#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_array.h"
#include "coroutine_runtime/device_tensor_map.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/status_cuda.h"
#include "server/backends/cuda/cuda_backend.h"
#include "server/backends/cuda/driver_api.h"
#include "tests/gpu/backends/gpu_session.h"

namespace detshare {
namespace {

constexpr char kCaller[] = R"(
.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b32 result) twice (.param .b32 value);
.visible .entry run(.param .u64 out, .param .u32 value) {
  .reg .u32 %r<4>;
  .reg .u64 %a<2>;
  ld.param.u64 %a0, [out];
  ld.param.u32 %r0, [value];
  {
    .param .b32 value_;
    .param .b32 result;
    st.param.b32 [value_], %r0;
    call.uni (result), twice, (value_);
    ld.param.b32 %r1, [result];
  }
  cvta.to.global.u64 %a0, %a0;
  st.global.u32 [%a0], %r1;
  ret;
}
)";

constexpr char kCallee[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .func (.param .b32 result) twice (.param .b32 value) {
  .reg .u32 %r<2>;
  ld.param.b32 %r0, [value];
  add.u32 %r1, %r0, %r0;
  st.param.b32 [result], %r1;
  ret;
}
)";

TEST_CASE("The properties describe the whole device") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  const DeviceProperties& properties = gpu->properties();
  CHECK(!properties.name.empty());
  CHECK(properties.sm_count > 0);
  CHECK(properties.total_memory > 1ull << 30);
  CHECK(properties.memory_granularity >= 65536);
  CHECK(properties.driver_version >= 12040);
  CHECK(properties.attributes.at(16) == properties.sm_count);
  CHECK(properties.attributes.at(91) == 0);  // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
  CHECK(properties.limits.size() > 2);
  CHECK(properties.tpc_gpc.size() == properties.tpc_index.size());
  if (properties.tpc_gpc.empty()) WARN("the SM topology is unknown");
  CHECK(properties.greatest_stream_priority < properties.least_stream_priority);
  WARN(properties.name << ": " << properties.sm_count << " SMs in groups of " << properties.sm_group
                       << ", driver " << properties.driver_version << ", "
                       << properties.tpc_gpc.size() << " TPCs known");
  CHECK(gpu->memory().total > 1ull << 30);
  CHECK(gpu->health().ok());
}

TEST_CASE("Memory is mapped where it is asked for, zeroed, and exactly") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  const uint64_t granule = gpu->properties().memory_granularity;
  for (int round = 0; round < 3; ++round) {
    REQUIRE_OK(session.space->Map(kBase + granule, 8 * granule));
    session.Copy(session.host_address(), kBase + granule, 8 * granule);
    session.Finish();
    const auto* words = session.host_as<uint64_t>();
    CHECK(std::all_of(words, words + granule, [](uint64_t word) { return word == 0; }));
    REQUIRE_OK(session.queue->Fill(*session.space, {kBase + granule, 0, 8 * granule, 1, 0x5A, 1}));
    session.Finish();
    CHECK_FALSE(session.space->Unmap(kBase + granule, granule).ok());
    REQUIRE_OK(session.space->Unmap(kBase + granule, 8 * granule));
  }
  CHECK_FALSE(session.space->Map(kBase + 512, granule).ok());
  CHECK_FALSE(session.space->Map(kBase - granule, granule).ok());
  REQUIRE_OK(session.space->Map(kBase, granule));
  CHECK_FALSE(session.space->Map(kBase, granule).ok());
  REQUIRE_OK(session.space->Map(kBase + granule, granule));
  CHECK(session.space->Contains(kBase + granule - 8, 16));
  CHECK_FALSE(session.space->Contains(kBase + 2 * granule - 8, 16));
  CHECK(session.space->Contains(session.host_address() + 5, session.host_bytes - 5));
  CHECK_FALSE(session.space->Contains(session.host_address(), session.host_bytes + 1));
  CHECK_FALSE(session.space->Contains(0x1000, 1));
  CHECK(CudaResultOf(session.space->Map(kBase + (1ull << 39), (1ull << 39) - 2 * kMiB)) ==
        kCudaErrorOutOfMemory);
}

TEST_CASE("Zeros lie in front of each session's memory, and belong to no session") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  const Session neighbour(*gpu, 4 * kMiB, 1);
  std::memset(session.host, 0xFF, 2 * kMiB);
  session.Copy(session.host_address(), kBase - 2 * kMiB, 2 * kMiB);
  session.Finish();
  CHECK(std::count(session.host, session.host + 2 * kMiB, 0) == 2 * kMiB);
  CHECK_FALSE(session.space->Contains(kBase - 8, 8));
}

TEST_CASE("Copies work on all of the session's memory, also across registered pieces") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  REQUIRE_OK(session.space->Map(kBase, 64 * kMiB));
  auto* words = session.host_as<uint32_t>();
  const uint64_t count = 9 * kMiB;  // 36 MiB: three pieces
  for (uint64_t i = 0; i < count; ++i) words[i] = static_cast<uint32_t>(i * 2654435761u);
  session.Copy(kBase + 12, session.host_address() + 4, 4 * (count - 1));
  session.Finish();
  std::memset(session.host, 0, 4 * count);
  session.Copy(session.host_address() + 4, kBase + 12, 4 * (count - 1));
  session.Finish();
  for (uint64_t i = 1; i < count; ++i) {
    if (words[i] != static_cast<uint32_t>(i * 2654435761u)) FAIL("word " << i);
  }
  // From device to device, and between host memories.
  session.Copy(kBase + 48 * kMiB, kBase + 12, kMiB);
  session.Copy(session.host_address() + 20 * kMiB, kBase + 48 * kMiB, kMiB);
  session.Finish();
  CHECK(std::memcmp(session.host + 20 * kMiB, session.host + 4, kMiB) == 0);
  session.Copy(session.host_address() + 30 * kMiB, session.host_address() + 4, kMiB);
  session.Finish();
  CHECK(std::memcmp(session.host + 30 * kMiB, session.host + 4, kMiB) == 0);
}

TEST_CASE("An inline source is only read during the call, however busy the queue is") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  REQUIRE_OK(session.space->Map(kBase, 2 * kMiB));
  auto* gate = session.fence + 8;
  REQUIRE_OK(session.queue->WaitFence(*session.space, gate, 1));
  std::vector<char> bytes(4096);
  for (int i = 0; i < 100; ++i) {
    std::memset(bytes.data(), i + 1, bytes.size());
    CopyRequest request;
    request.destination = kBase + 4096 * i;
    request.source = reinterpret_cast<DeviceAddress>(bytes.data());
    request.inline_source = true;
    request.width = 4096;
    REQUIRE_OK(session.queue->Copy(*session.space, request));
  }
  std::memset(bytes.data(), 0x77, bytes.size());
  CopyRequest rows;
  rows.destination = kBase + kMiB;
  rows.source = reinterpret_cast<DeviceAddress>(bytes.data());
  rows.inline_source = true;
  rows.width = 100;
  rows.height = 3;
  rows.source_pitch = 100;
  rows.destination_pitch = 512;
  REQUIRE_OK(session.queue->Copy(*session.space, rows));
  std::memset(bytes.data(), 0, bytes.size());
  gate->store(1, std::memory_order_release);
  session.Copy(session.host_address(), kBase, 2 * kMiB);
  session.Finish();
  for (int i = 0; i < 100; ++i) {
    CHECK(session.host[4096 * i] == i + 1);
    CHECK(session.host[4096 * i + 4095] == i + 1);
  }
  CHECK(session.host[kMiB + 2 * 512 + 99] == 0x77);
  CHECK(session.host[kMiB + 2 * 512 + 100] == 0);
}

TEST_CASE("Pitched copies and fills change only what they name, also across registered pieces") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  REQUIRE_OK(session.space->Map(kBase, 4 * kMiB));
  FillRequest fill;
  fill.address = kBase + 64;
  fill.pitch = 512;
  fill.width = 50;
  fill.height = 40;
  fill.value = 0xABCD1234;
  fill.element_bytes = 4;
  REQUIRE_OK(session.queue->Fill(*session.space, fill));
  // The host side begins just before the border of two pieces, at an odd address.
  const uint64_t start = 16 * kMiB - 1001;
  for (const auto& [height, depth] : {std::pair{40, 1}, std::pair{10, 4}}) {
    std::memset(session.host + start - 100, 0, 100000);
    CopyRequest copy;
    copy.destination = session.host_address() + start;
    copy.source = kBase + 64;
    copy.width = 200;
    copy.height = height;
    copy.depth = depth;
    copy.source_pitch = 512;
    copy.source_slice = 512 * height;
    copy.destination_pitch = 211;
    copy.destination_slice = 211 * height + 13;
    REQUIRE_OK(session.queue->Copy(*session.space, copy));
    session.Finish();
    for (int z = 0; z < depth; ++z) {
      for (int y = 0; y < height; ++y) {
        const char* row = session.host + start + z * copy.destination_slice + y * 211;
        uint32_t first, last;
        std::memcpy(&first, row, 4);
        std::memcpy(&last, row + 196, 4);
        REQUIRE(first == 0xABCD1234);
        REQUIRE(last == 0xABCD1234);
        REQUIRE(row[200] == 0);
      }
    }
  }
  // Within one piece the copy is one call.
  CopyRequest copy;
  copy.destination = session.host_address();
  copy.source = kBase + 64;
  copy.width = 200;
  copy.height = 10;
  copy.depth = 4;
  copy.source_pitch = 512;
  copy.source_slice = 5120;
  copy.destination_pitch = 256;
  copy.destination_slice = 2560;
  REQUIRE_OK(session.queue->Copy(*session.space, copy));
  REQUIRE_OK(session.queue->Fill(*session.space, {kBase, 0, 1000, 1, 0xBEEF, 2}));
  session.Finish();
  uint32_t last;
  std::memcpy(&last, session.host + 39 * 256 + 196, 4);
  CHECK(last == 0xABCD1234);
  CHECK(session.host[39 * 256 + 200] == 0);
}

TEST_CASE("Kernels run with their parameters and globals, and libraries describe them") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  REQUIRE_OK(session.space->Map(kBase, 2 * kMiB));
  auto library = session.Load(kPtx);
  CHECK(library->KernelNames().size() == 3);
  Kernel* iota = *library->GetKernel("iota");
  CHECK(iota->info().name == "iota");
  REQUIRE(iota->info().parameters.size() == 3);
  CHECK(iota->info().parameters[2].offset == 12);
  CHECK(iota->info().parameter_bytes == 16);
  CHECK(iota->info().attributes[0] == 1024);  // MAX_THREADS_PER_BLOCK
  CHECK_FALSE(library->GetKernel("nothing").ok());
  REQUIRE_OK(session.queue->Launch(*session.space, *iota, Shape(4, 256),
                                   Parameters().Add(kBase).Add(uint32_t{100}).Add(uint32_t{1000})));
  session.Copy(session.host_address(), kBase, 4096);
  session.Finish();
  for (uint32_t i = 0; i < 1024; ++i) {
    REQUIRE(session.host_as<uint32_t>()[i] == (i < 1000 ? 100 + i : 0));
  }
  CHECK_FALSE(
      session.queue
          ->Launch(*session.space, *iota, Shape(1, 2048), Parameters().Add(kBase).Add(uint64_t{0}))
          .ok());
  CHECK_FALSE(
      session.queue->Launch(*session.space, *iota, Shape(1, 1), Parameters().Add(kBase)).ok());

  auto counter = library->GetGlobal("counter");
  REQUIRE_OK(counter.status());
  CHECK(counter->bytes == 4);
  CHECK(session.space->Contains(counter->address, 4));
  CHECK_FALSE(session.space->Contains(counter->address, 4096));
  session.Copy(session.host_address(), counter->address, 4);
  session.Finish();
  CHECK(session.host_as<uint32_t>()[0] == 7);
  CHECK_FALSE(library->GetGlobal("nothing").ok());

  CHECK(iota->MaxActiveBlocks({256, 0, 0}).value() >= 1);
  CHECK(iota->AvailableDynamicShared(1, 256).value() > 16384);
  REQUIRE_OK(iota->SetAttribute(8, 65536));  // MAX_DYNAMIC_SHARED_SIZE_BYTES
  CHECK(iota->info().attributes[8] == 65536);
  LaunchShape shape = Shape(8, 128);
  CHECK(iota->MaxPotentialClusterSize(shape).value() >= 1);
  shape.cluster = {2, 1, 1};
  CHECK(iota->MaxActiveClusters(shape).value() >= 1);
  REQUIRE_OK(session.queue->Launch(*session.space, *iota, shape,
                                   Parameters().Add(kBase).Add(uint32_t{1}).Add(uint32_t{1000})));
  session.Finish();
}

TEST_CASE("Bad images are refused with CUDA's errors and a log") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  const auto load = [&](std::string_view image, CompileLogs& logs) {
    return CudaResultOf(
        gpu->LoadLibrary(
               *session.space,
               absl::MakeConstSpan(reinterpret_cast<const std::byte*>(image.data()), image.size()),
               {}, logs, nullptr)
            .status());
  };
  CompileLogs logs;
  logs.error_limit = 2000;
  CHECK(load(".version 8.0\n.target sm_75\n.address_size 64\n.entry x() { nonsense; }", logs) ==
        kCudaErrorInvalidPtx);
  CHECK(logs.error.find("nonsense") != std::string::npos);
  CHECK(load("\x7f"
             "ELF and nothing else",
             logs) != 0);
  CHECK(load("", logs) != 0);
  CHECK(gpu->health().ok());
}

TEST_CASE("Fences are written by the GPU and waited for by it") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  auto other = *gpu->whole().CreateQueue(0);
  std::atomic<uint64_t>* reached = session.fence + 1;
  std::atomic<uint64_t>* resume = session.fence + 2;
  REQUIRE_OK(session.queue->WriteFence(*session.space, reached, 5));
  REQUIRE_OK(session.queue->WaitFence(*session.space, resume, 9));
  REQUIRE_OK(session.queue->WriteFence(*session.space, reached, 6));
  auto marker = *gpu->CreateMarker(false);
  REQUIRE_OK(session.queue->Record(*marker));
  REQUIRE_OK(other->Wait(*marker));
  REQUIRE_OK(other->WriteFence(*session.space, session.fence + 3, 1));
  REQUIRE(Session::Reached(*reached, 5));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(*reached == 5);
  CHECK(session.fence[3] == 0);
  resume->store(9, std::memory_order_release);
  CHECK(Session::Reached(session.fence[3], 1));
  CHECK(*reached == 6);
}

TEST_CASE("An abandoned session does not wait for its client") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  REQUIRE_OK(session.queue->WaitFence(*session.space, session.fence + 2, 9));
  REQUIRE_OK(session.queue->WriteFence(*session.space, session.fence + 1, 1));
  session.space->Abandon();
  REQUIRE_OK(session.queue->WaitFence(*session.space, session.fence + 2, 100));
  REQUIRE_OK(session.queue->WriteFence(*session.space, session.fence + 1, 2));
  CHECK(Session::Reached(session.fence[1], 2));
}

TEST_CASE("Timed markers measure, and say when they are not reached") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  REQUIRE_OK(session.space->Map(kBase, 2 * kMiB));
  auto library = session.Load(kPtx);
  Kernel* where = *library->GetKernel("where");
  auto start = *gpu->CreateMarker(true), end = *gpu->CreateMarker(true);
  const auto run = [&](uint64_t cycles) {
    REQUIRE_OK(session.queue->Record(*start));
    REQUIRE_OK(session.queue->Launch(*session.space, *where, Shape(1, 1),
                                     Parameters().Add(kBase).Add(cycles)));
    REQUIRE_OK(session.queue->Record(*end));
  };
  run(1000);
  session.Finish();
  run(40'000'000);
  CHECK(CudaResultOf(gpu->ElapsedMilliseconds(*start, *end).status()) == kCudaErrorNotReady);
  session.Finish();
  const float milliseconds = gpu->ElapsedMilliseconds(*start, *end).value();
  CHECK(milliseconds > 5);
  CHECK(milliseconds < 500);
}

TEST_CASE("A partition confines kernels to its SMs, and a session moves between partitions") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  const int group = gpu->properties().sm_group, sms = gpu->properties().sm_count;
  if (group >= sms) {
    WARN("SKIPPED, the GPU has no partitions");
    return;
  }
  Session session(*gpu);
  REQUIRE_OK(session.space->Map(kBase, 2 * kMiB));
  auto library = session.Load(kPtx);
  Kernel* where = *library->GetKernel("where");
  const auto used = [&](Queue& queue, int blocks) {
    REQUIRE_OK(queue.Launch(*session.space, *where, Shape(blocks, 1024),
                            Parameters().Add(kBase).Add(uint64_t{200'000})));
    session.Finish(queue);
    session.Copy(session.host_address(), kBase, 4 * blocks);
    session.Finish();
    return std::set<uint32_t>(session.host_as<uint32_t>(), session.host_as<uint32_t>() + blocks);
  };
  CHECK(static_cast<int>(used(*session.queue, 4 * sms).size()) == sms);
  auto low = gpu->CreatePartition(0, 2 * group);
  auto high = gpu->CreatePartition(2 * group, sms - 2 * group);
  REQUIRE_OK(low.status());
  REQUIRE_OK(high.status());
  auto low_queue = *(*low)->CreateQueue(0), high_queue = *(*high)->CreateQueue(0);
  const std::set<uint32_t> low_sms = used(*low_queue, 4 * sms),
                           high_sms = used(*high_queue, 4 * sms);
  CHECK(static_cast<int>(low_sms.size()) == 2 * group);
  CHECK(static_cast<int>(high_sms.size()) == sms - 2 * group);
  for (uint32_t sm : low_sms) CHECK_FALSE(high_sms.contains(sm));
  CHECK_FALSE(gpu->CreatePartition(1, group).ok());
  CHECK_FALSE(gpu->CreatePartition(0, sms + group).ok());

  // A chain of dependent launches, each on another partition than the one before.
  {
    Kernel* iota = *library->GetKernel("iota");
    QueuePool pool(*gpu);
    std::optional<Executor> executor(std::in_place);
    Parking parking(*executor);
    auto coroutine = *GpuCoroutine::Create(*gpu, *session.space, pool, parking);
    REQUIRE_OK(coroutine->CreateStream(1, 1, {}));
    Partition* places[] = {low->get(), high->get(), &gpu->whole()};
    for (uint32_t i = 0; i < 300; ++i) {
      coroutine->Bind(*places[i % 3]);
      REQUIRE_OK(coroutine->Launch(1, *iota, Shape(1, 32),
                                   Parameters().Add(kBase).Add(i).Add(uint32_t{32})));
    }
    CopyRequest copy;
    copy.destination = session.host_address();
    copy.source = kBase;
    copy.width = 128;
    REQUIRE_OK(coroutine->Copy(1, copy));
    REQUIRE_OK(coroutine->Signal(1, session.fence, ++session.last_value));
    REQUIRE(Session::Reached(*session.fence, session.last_value));
    CHECK(session.host_as<uint32_t>()[31] == 299 + 31);
    executor.reset();
    session.queue.reset();
    library.reset();
    session.space.reset();  // destroyed before the coroutine
  }
}

TEST_CASE("The blocks of cooperative launches run together, and too large launches are refused") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  REQUIRE_OK(session.space->Map(kBase, 2 * kMiB));
  auto library = session.Load(kPtx);
  Kernel* meet = *library->GetKernel("meet");
  LaunchShape shape = Shape(gpu->properties().sm_count, 1024);
  shape.cooperative = true;
  REQUIRE_OK(session.queue->Launch(*session.space, *meet, shape, Parameters().Add(kBase)));
  session.Finish();
  shape.grid.x *= 100;
  CHECK(
      CudaResultOf(session.queue->Launch(*session.space, *meet, shape, Parameters().Add(kBase))) ==
      kCudaErrorCooperativeLaunchTooLarge);
}

TEST_CASE("Text of kernels goes to the session that launched them") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session one(*gpu), two(*gpu, 40 * kMiB, 1);
  auto first = one.Load(kPrintingPtx), second = two.Load(kPrintingPtx);
  Kernel* a = *first->GetKernel("say");
  Kernel* b = *second->GetKernel("say");
  std::thread other([&] {
    for (uint32_t i = 0; i < 20; ++i) {
      two.queue->Launch(*two.space, *b, Shape(1, 1), Parameters().Add(1000 + i)).IgnoreError();
    }
  });
  for (uint32_t i = 0; i < 20; ++i) {
    REQUIRE_OK(one.queue->Launch(*one.space, *a, Shape(1, 1), Parameters().Add(i)));
  }
  other.join();
  one.Finish();
  two.Finish();
  // The second session to print has waited for the first one's text.
  gpu->FlushOutput(*one.space);
  gpu->FlushOutput(*two.space);
  CHECK_FALSE(one.output->pending());
  CHECK_FALSE(two.output->pending());
  std::string expected_one, expected_two;
  for (int i = 0; i < 20; ++i) {
    expected_one += "value " + std::to_string(i) + "\n";
    expected_two += "value " + std::to_string(1000 + i) + "\n";
  }
  CHECK(one.output->printed() == expected_one);
  CHECK(two.output->printed() == expected_two);
}

TEST_CASE("Images are linked, and errors of the linker are logged") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  REQUIRE_OK(session.space->Map(kBase, 2 * kMiB));
  CompileLogs logs;
  logs.error_limit = logs.info_limit = 2000;
  const LinkInputImage caller{1, "caller.ptx", kCaller}, callee{1, "callee.ptx", kCallee};
  auto image = gpu->Link({caller, callee}, {}, logs);
  INFO(logs.error);
  REQUIRE_OK(image.status());
  auto library = session.Load(*image);
  Kernel* run = *library->GetKernel("run");
  REQUIRE_OK(session.queue->Launch(*session.space, *run, Shape(1, 1),
                                   Parameters().Add(kBase).Add(uint32_t{21})));
  session.Copy(session.host_address(), kBase, 4);
  session.Finish();
  CHECK(session.host_as<uint32_t>()[0] == 42);
  CHECK_FALSE(gpu->Link({caller}, {}, logs).ok());
  CHECK(logs.error.find("twice") != std::string::npos);
  REQUIRE_OK(gpu->health());  // the driver's error is CUDA_ERROR_UNKNOWN
}

TEST_CASE("Registered memory can be given back and its addresses used again") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  REQUIRE_OK(session.space->Map(kBase, 2 * kMiB));
  void* const place = reinterpret_cast<void*>(0x4600'0000'0000);
  for (int round = 1; round <= 5; ++round) {
    const uint64_t bytes = round * 7 * kMiB;
    void* memory = mmap(place, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    REQUIRE(memory == place);
    std::memset(memory, round, bytes);
    REQUIRE_OK(session.space->RegisterHost(memory, bytes));
    const auto address = reinterpret_cast<DeviceAddress>(memory);
    session.Copy(kBase, address + bytes - 64, 64);
    session.Copy(session.host_address(), kBase, 64);
    session.Finish();
    CHECK(session.host[63] == round);
    REQUIRE_OK(session.space->UnregisterHost(memory));
    CHECK_FALSE(session.space->Contains(address, 1));
    munmap(memory, bytes);
    // In half of the rounds the deferred reclaimer is too slow.
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

TEST_CASE("A session reads the limit that it asked for while the largest holds") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session session(*gpu), other(*gpu, 40 * kMiB, 1);
  const uint64_t before = gpu->properties().limits[0];  // the stack
  CHECK(gpu->SetLimit(*session.space, 0, before * 4)->value == before * 4);
  CHECK(gpu->SetLimit(*other.space, 0, before)->value == before);
  CHECK_FALSE(gpu->SetLimit(*session.space, 12345, 1).ok());
  const auto api = cuda::OpenDriver("");
  REQUIRE_OK(api.status());
  size_t stack = 0;
  REQUIRE((*api)->cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE) == CUDA_SUCCESS);
  CHECK(stack >= before * 4);
}

TEST_CASE("Durations of operations", "[.speed]") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session session(*gpu);
  REQUIRE_OK(session.space->Map(kBase, 2 * kMiB));
  auto library = session.Load(kPtx);
  Kernel* iota = *library->GetKernel("iota");
  QueuePool pool(*gpu);
  Executor executor;
  Parking parking{executor};
  auto coroutine = *GpuCoroutine::Create(*gpu, *session.space, pool, parking);
  REQUIRE_OK(coroutine->CreateStream(1, 1, {.legacy_default = true}));
  REQUIRE_OK(coroutine->CreateStream(2, 1, {}));
  const Parameters parameters = Parameters().Add(kBase).Add(1u).Add(32u);
  bool ok = true;
  const auto launch = [&] { ok &= coroutine->Launch(1, *iota, Shape(1, 32), parameters).ok(); };
  const auto finish = [&] {
    ok &= coroutine->SignalContext(1, session.fence, ++session.last_value).ok();
    ok &= Session::Reached(*session.fence, session.last_value);
  };
  launch();
  finish();
  const auto report = [&](const char* what, int count, const std::function<void()>& function) {
    function();
    finish();
    const double each = MicrosecondsEach(count, function);
    finish();
    WARN(what << ": " << each << " us");
  };
  report("launch", 1000, launch);
  report("launch on the queue", 1000, [&] {
    ok &= session.queue->Launch(*session.space, *iota, Shape(1, 32), parameters).ok();
  });
  report("launch + fence seen", 1000, [&] {
    launch();
    ok &= coroutine->Signal(1, session.fence, ++session.last_value).ok();
    ok &= Session::Reached(*session.fence, session.last_value);
  });
  report("launches that alternate between the legacy and a blocking stream", 1000, [&] {
    launch();
    ok &= coroutine->Launch(2, *iota, Shape(1, 32), parameters).ok();
  });
  auto low = gpu->CreatePartition(0, gpu->properties().sm_group);
  if (low.ok()) {
    int i = 0;
    report("launch on another partition every time", 1000, [&] {
      coroutine->Bind(++i % 2 == 0 ? gpu->whole() : **low);
      launch();
    });
    coroutine->Bind(gpu->whole());
    launch();
    report("creating a partition", 3, [&] {
      auto partition = gpu->CreatePartition(0, gpu->properties().sm_group);
      ok &= partition.ok();
    });
  }
  report("creating a queue", 20, [&] { ok &= gpu->whole().CreateQueue(0).ok(); });
  for (const uint64_t bytes : {2 * kMiB, 64 * kMiB, 1024 * kMiB}) {
    report(bytes == 2 * kMiB    ? "map and unmap 2 MiB"
           : bytes == 64 * kMiB ? "64 MiB"
                                : "1 GiB",
           5, [&] {
             ok &= session.space->Map(kBase + (1ull << 32), bytes).ok();
             ok &= session.space->Unmap(kBase + (1ull << 32), bytes).ok();
           });
  }
  const auto copy = [&](uint64_t to, uint64_t from, uint64_t bytes, bool in_line) {
    CopyRequest request;
    request.destination = to;
    request.source = from;
    request.width = bytes;
    request.inline_source = in_line;
    ok &= coroutine->Copy(1, request).ok();
    ok &= coroutine->Signal(1, session.fence, ++session.last_value).ok();
    ok &= Session::Reached(*session.fence, session.last_value);
  };
  char bytes[64] = {};
  report("64 bytes inline to the device, fence seen", 500,
         [&] { copy(kBase, reinterpret_cast<uint64_t>(bytes), 64, true); });
  report("64 bytes to registered memory, fence seen", 500,
         [&] { copy(session.host_address(), kBase, 64, false); });
  REQUIRE_OK(session.space->Map(kBase + 2 * kMiB, 64 * kMiB));
  report("32 MiB from registered memory, fence seen", 10,
         [&] { copy(kBase, session.host_address(), 32 * kMiB, false); });
  // The same piece twice, to see whether the borders of pieces cost something.
  report("2 x 16 MiB from one piece of registered memory, fence seen", 10, [&] {
    session.Copy(kBase, session.host_address(), 16 * kMiB);
    copy(kBase + 16 * kMiB, session.host_address(), 16 * kMiB, false);
  });
  report("32 MiB to registered memory, fence seen", 10,
         [&] { copy(session.host_address(), kBase, 32 * kMiB, false); });
  CHECK(ok);
  session.queue.reset();
  library.reset();
  session.space.reset();
}

TEST_CASE("New arrays are zero, whatever was in their memory before") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  REQUIRE(gpu->images() != nullptr);
  Session session(*gpu);
  for (const ArrayDescription& description :
       {ArrayDescription{70, 0, 0, 0x20, 1, 0, 0}, ArrayDescription{500, 300, 0, 0x20, 4, 0, 0},
        ArrayDescription{64, 32, 16, 1, 4, kArraySurface, 0},
        ArrayDescription{70, 0, 5, 0x10, 2, kArrayLayered, 0},
        ArrayDescription{32, 32, 12, 0x03, 1, kArrayLayered | kArrayCubemap, 0},
        ArrayDescription{64, 64, 0, 0x08, 1, 0, 4},
        ArrayDescription{4096, 512, 0, 0x20, 4, 0, 0}}) {
    for (int round = 0; round < 3; ++round) {
      auto array = gpu->images()->CreateArray(*session.space, description);
      REQUIRE_OK(array.status());
      for (uint32_t level = 0; level < description.level_count(); ++level) {
        const ArrayExtent extent = LevelExtent(description, level);
        REQUIRE(extent.bytes() <= session.host_bytes - 8192);
        CopyRequest down;
        down.source_array = {array->get(), level, 0, 0, 0};
        // Rows at odd addresses, so that some lie across two registered pieces.
        down.destination = session.host_address() + 16;
        down.destination_pitch = extent.row_bytes;
        down.destination_slice = extent.row_bytes * extent.rows;
        down.width = extent.row_bytes;
        down.height = extent.rows;
        down.depth = extent.slices;
        std::memset(session.host, 0xA5, extent.bytes() + 64);
        REQUIRE_OK(session.queue->Copy(*session.space, down));
        session.Finish();
        const char* bytes = session.host + 16;
        CHECK(std::all_of(bytes, bytes + extent.bytes(), [](char byte) { return byte == 0; }));
        CHECK(static_cast<unsigned char>(bytes[extent.bytes()]) == 0xA5);
        // A pattern that the next array must not find, and that must come back.
        for (uint64_t i = 0; i < extent.bytes(); ++i)
          session.host[16 + i] = static_cast<char>(i * 7 + 1);
        CopyRequest up = down;
        up.destination_array = down.source_array;
        up.source_array = {};
        up.source = down.destination;
        up.source_pitch = down.destination_pitch;
        up.source_slice = down.destination_slice;
        REQUIRE_OK(session.queue->Copy(*session.space, up));
        session.Finish();
        std::memset(session.host, 0, extent.bytes() + 64);
        REQUIRE_OK(session.queue->Copy(*session.space, down));
        session.Finish();
        bool same = true;
        for (uint64_t i = 0; i < extent.bytes(); ++i)
          same &= session.host[16 + i] == static_cast<char>(i * 7 + 1);
        CHECK(same);
      }
    }
  }
}

TEST_CASE("Only tensor maps that the device can describe are encoded") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  if (gpu->tensor_maps() == nullptr) {
    WARN("SKIPPED, the GPU has no tensor maps");
    return;
  }
  TensorMapRequest request;
  request.data_type = 7;  // float
  request.rank = 2;
  request.address = kBase;
  request.dimensions = {256, 64};
  request.strides = {1024};
  request.element_strides = {1, 1};
  request.box = {32, 16};
  const absl::StatusOr<TensorMap> map = gpu->tensor_maps()->Encode(request);
  REQUIRE_OK(map.status());
  request.address = kBase + 1024;
  const absl::StatusOr<TensorMap> other = gpu->tensor_maps()->Encode(request);
  REQUIRE_OK(other.status());
  CHECK(*map != *other);
  const absl::StatusOr<TensorMap> moved = gpu->tensor_maps()->ReplaceAddress(*map, kBase + 1024);
  REQUIRE_OK(moved.status());
  CHECK(*moved == *other);
  request.address = kBase + 4;
  CHECK(CudaResultOf(gpu->tensor_maps()->Encode(request).status()) == kCudaErrorInvalidValue);
  request.address = 0;
  const absl::Status null = gpu->tensor_maps()->Encode(request).status();
  WARN("a map of the null address: " << null.ToString());
}

TEST_CASE("A fault is noticed without a call, and every session gets the error", "[.fault]") {
  Device* gpu = Gpu();
  if (gpu == nullptr) return;
  Session guilty(*gpu), innocent(*gpu, 40 * kMiB, 1);
  auto library = guilty.Load(kPtx);
  Kernel* iota = *library->GetKernel("iota");
  CHECK(gpu->health().ok());
  REQUIRE_OK(guilty.queue->Launch(
      *guilty.space, *iota, Shape(1, 32),
      Parameters().Add(kBase + (1ull << 39)).Add(uint32_t{1}).Add(uint32_t{32})));
  const auto begin = std::chrono::steady_clock::now();
  while (gpu->health().ok() &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(10)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  WARN("noticed after " << took.count() << " ms");
  CHECK(CudaResultOf(guilty.space->fault()) == kCudaErrorIllegalAddress);
  CHECK(CudaResultOf(innocent.space->fault()) == kCudaErrorIllegalAddress);
  WARN("guilty: " << guilty.space->fault().ToString());
  WARN("innocent: " << innocent.space->fault().ToString());
  CHECK(guilty.space->fault().message().find("only it was running") != absl::string_view::npos);
}

}  // namespace
}  // namespace detshare
