// Sessions and their workers without gRPC, so that the thread sanitizer sees everything.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "coroutine_runtime/status_cuda.h"
#include "proto/wire/common.h"
#include "proto/wire/context.h"
#include "proto/wire/copy.h"
#include "proto/wire/launch.h"
#include "proto/wire/library.h"
#include "proto/wire/memory.h"
#include "proto/wire/stream.h"
#include "server/base/logging.h"
#include "server/session/session_config.h"
#include "server/session/session_worker.h"
#include "server/sessions/session_manager.h"
#include "tests/server/instant_device.h"
#include "tests/server/shared_memory/ring_test_client.h"
#include "tests/server/test_windows.h"

namespace detshare {
namespace {

using std::chrono::seconds;

// For other threads: the test framework's assertions work only on its own thread.
void Must(bool condition) {
  if (!condition) std::abort();
}

struct OpenedSession {
  std::shared_ptr<SessionWorker> worker;
  std::unique_ptr<RingTestClient> ring;
  // The manager may outlive this object and then report the end.
  std::shared_ptr<std::promise<uint64_t>> granted = std::make_shared<std::promise<uint64_t>>();
  std::shared_ptr<std::promise<int>> ended = std::make_shared<std::promise<int>>();
  uint64_t bytes = 0;
  ~OpenedSession() {
    if (ring != nullptr) munmap(&ring->header(), bytes);
  }
};

struct SessionFixture {
  explicit SessionFixture(const std::string& policy = "auto",
                          uint64_t kept_bytes = uint64_t{512} << 20) {
    options.limits.pinned.kept_bytes = kept_bytes;
    SetLogLevel(LogLevel::kError);
    options.policy = policy;
    options.runtime_directory = directory.path;
    options.windows = TestWindows();
    options.region.staging_bytes = 1 << 16;
    options.region.fence_count = 512;
    options.limits.calls = 16;
    device.recipes.push_back(
        {"add", 16, [](InstantSpace&, const LaunchShape&, const std::byte* parameters) {
           uint64_t address, value;
           std::memcpy(&address, parameters, 8);
           std::memcpy(&value, parameters + 8, 8);
           *reinterpret_cast<uint64_t*>(address) += value;
         }});
    device.recipes.push_back(
        {"fault", 0,
         [](InstantSpace& space, const LaunchShape&, const std::byte*) { space.Fault(); }});
    auto created = SessionManager::Create({&device}, options);
    REQUIRE(created.ok());
    manager = *std::move(created);
  }

  std::unique_ptr<OpenedSession> Open() {
    auto session = std::make_unique<OpenedSession>();
    OpenedSession* const s = session.get();
    SessionManager::Listener listener;
    listener.granted = [granted = s->granted](SessionWorker&, uint64_t bytes) {
      granted->set_value(bytes);
    };
    listener.refused = [granted = s->granted](const absl::Status&) { granted->set_value(0); };
    listener.ended = [ended = s->ended](uint64_t, int result, const std::string&) {
      ended->set_value(result);
    };
    SessionRequest request;
    request.owner = {getuid(), getgid()};
    request.tenant = "tester";
    auto worker = manager->Open(request, listener);
    Must(worker.ok());
    s->worker = *worker;
    s->bytes = s->granted->get_future().get();
    Must(s->bytes != 0);
    const int fd = open((s->worker->config().directory + "/session").c_str(), O_RDWR);
    Must(fd >= 0);
    void* memory = mmap(nullptr, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    Must(memory != MAP_FAILED);
    s->ring = std::make_unique<RingTestClient>(static_cast<SessionHeader*>(memory));
    return session;
  }

  template <typename Args>
  static std::pair<int, std::string> Call(OpenedSession& session, Op op, const Args& args,
                                          const std::string& payload = "", uint64_t after = 0) {
    std::promise<std::pair<int, std::string>> replied;
    ControlCall call;
    call.op = static_cast<uint16_t>(op);
    call.context = 1;
    call.after = after;
    call.args = {reinterpret_cast<const uint8_t*>(&args), sizeof(args)};
    call.payload = std::make_shared<const std::string>(payload);
    call.done = [&](int result, std::string reply) {
      replied.set_value({result, std::move(reply)});
    };
    session.worker->Call(std::move(call));
    return replied.get_future().get();
  }

  static KernelId LoadKernel(OpenedSession& session, const std::string& name) {
    wire::cuLibraryLoadData load{};
    load.context = 1;
    load.image_bytes = 4;
    wire::cuLibraryLoadData_Reply library{};
    std::memcpy(&library, Call(session, Op::cuLibraryLoadData, load, "code").second.data(),
                sizeof(library));
    wire::cuLibraryGetKernel_Reply kernel{};
    std::memcpy(
        &kernel,
        Call(session, Op::cuLibraryGetKernel, wire::cuLibraryGetKernel{library.library, 0}, name)
            .second.data(),
        sizeof(kernel));
    return kernel.kernel;
  }

  TestDirectory directory;
  InstantDevice device;
  ServerOptions options;
  std::unique_ptr<SessionManager> manager;
};

wire::cuLaunchKernelEx Launch(KernelId kernel) {
  wire::cuLaunchKernelEx launch{};
  launch.stream = 1;
  launch.kernel = kernel;
  for (int i = 0; i < 3; ++i) launch.grid[i] = launch.block[i] = 1;
  return launch;
}

TEST_CASE("Sessions work side by side, each in its own memory") {
  SessionFixture f;
  constexpr int kSessions = 4;
  std::vector<std::unique_ptr<OpenedSession>> sessions;
  for (int i = 0; i < kSessions; ++i) sessions.push_back(f.Open());
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < kSessions; ++i) {
    threads.emplace_back([&, i] {
      OpenedSession& session = *sessions[i];
      RingTestClient& ring = *session.ring;
      const KernelId kernel = SessionFixture::LoadKernel(session, "add");
      ring.Send(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{1, 1, 0, 0});
      wire::cuMemAlloc_v2_Reply memory{};
      ring.Call(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{4096}, &memory);
      const uint64_t parameters[2] = {memory.address, static_cast<uint64_t>(i + 1)};
      const std::span<const uint8_t> payload(reinterpret_cast<const uint8_t*>(parameters),
                                             sizeof(parameters));
      for (int k = 0; k < 5000; ++k) ring.Send(Op::cuLaunchKernelEx, Launch(kernel), payload);
      ring.Send(
          Op::cuMemcpyAsync,
          wire::cuMemcpyAsync{
              {0, wire::kStaging, 0}, {memory.address, wire::kAddress, 0}, 8, 1, 0, {1, 0, 0}});
      if (!Eventually([&] { return ring.fence(0).load(std::memory_order_acquire) == 1; })) return;
      uint64_t sum;
      std::memcpy(&sum, ring.staging(), 8);
      if (sum == 5000u * (i + 1)) ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good.load() == kSessions);
  for (const auto& info : f.manager->Sessions()) CHECK(info.counters.kernels == 5000);
  f.manager->EndAll(1, "the test ends", seconds(20));
  CHECK(f.manager->WaitUntilEmpty(seconds(20)));
  CHECK(f.device.spaces.load() == 0);
}

TEST_CASE("A control call waits for the records before it") {
  SessionFixture f;
  auto session = f.Open();
  RingTestClient& ring = *session->ring;
  // The call names a position that the ring has not reached. The reply comes only after the record.
  std::atomic<bool> replied{false};
  std::thread caller([&] {
    SessionFixture::Call(*session, Op::cuLibraryUnload, wire::cuLibraryUnload{9, 0}, "", kRingLine);
    replied.store(true);
  });
  CHECK(ring.header().head.load() == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(replied.load());
  ring.Send(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{1, 1, 0, 0});
  caller.join();
  CHECK(ring.header().head.load() >= kRingLine);
}

TEST_CASE("Calls above the limit and calls of an ended session get a reply") {
  SessionFixture f;
  auto session = f.Open();
  std::vector<std::thread> callers;
  std::atomic<int> refused{0};
  for (int i = 0; i < 20; ++i) {
    callers.emplace_back([&] {
      if (SessionFixture::Call(*session, Op::cuLibraryUnload, wire::cuLibraryUnload{9, 0}, "",
                               kRingLine)
              .first == kCudaErrorNotPermitted) {
        ++refused;
      }
    });
  }
  CHECK(Eventually([&] { return refused.load() == 4; }));
  session->worker->End(77, "the test ends it");
  for (std::thread& caller : callers) caller.join();
  CHECK(session->ended->get_future().get() == 77);
  CHECK(SessionFixture::Call(*session, Op::cuLibraryUnload, wire::cuLibraryUnload{9, 0}).first ==
        kCudaErrorNotPermitted);
}

TEST_CASE("A throttled session still learns how far its work is, allocates and loads code") {
  SessionFixture f(std::filesystem::absolute("tests/policy/stopping_policy.so").string());
  const auto stopped = f.Open(), asking = f.Open();
  const KernelId kernel = SessionFixture::LoadKernel(*stopped, "add");
  uint64_t sum = 0;
  const uint64_t parameters[2] = {reinterpret_cast<uint64_t>(&sum), 1};
  stopped->ring->Send(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{1, 1, 0, 0});
  stopped->ring->Send(Op::cuLaunchKernelEx, Launch(kernel),
                      {reinterpret_cast<const uint8_t*>(parameters), sizeof(parameters)});
  // These calls are never throttled. A throttled record would pass after the one above.
  wire::cuCtxSynchronize synchronize{1, 0, {0, kNoFence, 0}};
  CHECK(asking->ring->Call(Op::cuCtxSynchronize, synchronize) == 0);
  CHECK(SessionFixture::LoadKernel(*asking, "add") != 0);
  const std::string code = "code";
  wire::cuLibraryLoadData load{};
  load.context = 1;
  load.image_bytes = code.size();
  CHECK(asking->ring->Call(Op::cuLibraryLoadData, load,
                           {reinterpret_cast<const uint8_t*>(code.data()), code.size()}) == 0);
  CHECK(asking->ring->Call(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{64}) == 0);
  CHECK(sum == 0);
}

TEST_CASE("A sleeping session sees its fault, and no other session does") {
  SessionFixture f;
  auto guilty = f.Open();
  auto innocent = f.Open();
  const KernelId kernel = SessionFixture::LoadKernel(*guilty, "fault");
  guilty->ring->Send(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{1, 1, 0, 0});
  guilty->ring->Send(Op::cuLaunchKernelEx, Launch(kernel));
  CHECK(Eventually(
      [&] { return guilty->ring->header().sticky_error.load() == kCudaErrorIllegalAddress; }));
  CHECK(Eventually([&] { return guilty->worker->faulted(); }));
  CHECK(innocent->ring->Call(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{64}) == 0);
  CHECK(innocent->ring->header().sticky_error.load() == 0);
  CHECK(f.manager->DeviceHealth().ok());
}

TEST_CASE("No operation behind the order to end succeeds, because its work may be dropped") {
  SessionFixture f;
  std::atomic<bool> go{false};
  std::unique_ptr<OpenedSession> session;
  f.device.recipes.push_back({"end", 0, [&](InstantSpace&, const LaunchShape&, const std::byte*) {
                                while (!go.load()) std::this_thread::yield();
                                session->worker->End(77, "the test ends it");
                              }});
  session = f.Open();
  const KernelId kernel = SessionFixture::LoadKernel(*session, "end");
  session->ring->Send(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{1, 1, 0, 0});
  session->ring->Send(Op::cuLaunchKernelEx, Launch(kernel));
  // Both records are there before the first one ends the session.
  const wire::cuMemAlloc_v2 allocation{64};
  ReplySlot& slot = session->ring->slot(0);
  slot.state.store(kReplyPending, std::memory_order_relaxed);
  session->ring->Submit(static_cast<uint16_t>(Op::cuMemAlloc_v2), &allocation, sizeof(allocation),
                        {}, 0);
  go.store(true);
  REQUIRE(Eventually([&] { return slot.state.load(std::memory_order_acquire) == kReplyDone; }));
  CHECK(slot.result == 77);
  CHECK(session->ended->get_future().get() == 77);
}

TEST_CASE("Sessions that begin and end at random leave nothing behind") {
  SessionFixture f;
  std::atomic<int> as_said{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 12; ++i) {
        auto session = f.Open();
        session->ring->Send(Op::cuStreamCreateWithPriority,
                            wire::cuStreamCreateWithPriority{1, 1, 0, 0});
        if ((i + t) % 3 == 0) session->ring->Call(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{1 << 20});
        session->worker->End(5, "done");
        if (i % 2 == 0) session->worker->End(6, "again");
        if (session->ended->get_future().get() == 5) ++as_said;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(as_said.load() == 3 * 12);
  CHECK(f.manager->WaitUntilEmpty(seconds(20)));
  CHECK(f.device.used.load() == 0);
  CHECK(f.device.spaces.load() == 0);
}

TEST_CASE("A client that changes the sleeping reader's word can still be ended") {
  SessionFixture f;
  auto session = f.Open();
  std::atomic<bool> stop{false};
  std::thread rude([&] {
    while (!stop.load()) session->ring->header().reader_asleep.store(1);
  });
  session->worker->End(8, "the test ends it");
  CHECK(session->ended->get_future().get() == 8);
  stop.store(true);
  rude.join();
}

TEST_CASE("A tenant has done what its ended sessions did, and has none of their memory") {
  SessionFixture f;
  auto session = f.Open();
  RingTestClient& ring = *session->ring;
  REQUIRE(ring.Call(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{4 << 20}) == 0);
  REQUIRE(ring.Call(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{1, 1, 0, 0}) ==
          0);
  REQUIRE(ring.Call(Op::cuLaunchKernelEx, Launch(f.LoadKernel(*session, "fault"))) == 0);
  const auto use = [&] { return f.manager->Use().at("tester"); };
  CHECK(use().counters.device_memory == 4 << 20);
  session->worker->End(0, "the test ends it");
  session->ended->get_future().get();
  session.reset();
  REQUIRE(f.manager->WaitUntilEmpty(std::chrono::minutes(1)));
  CHECK(use().counters.device_memory == 0);
  CHECK(use().counters.kernels == 1);
  CHECK(use().faulted == 1);
  CHECK(use().open == 0);
}

TEST_CASE("The pinned memory of a context ends with it, and that of others stays") {
  SessionFixture f;
  auto session = f.Open();
  RingTestClient& ring = *session->ring;
  const auto pinned = [&] { return f.manager->Use().at("tester").counters.pinned_memory; };
  for (const ContextId context : {1, 2}) {
    ring.context = context;
    REQUIRE(ring.Call(Op::cuMemHostAlloc, wire::cuMemHostAlloc{uint64_t{context} << 20, 0, 0}) ==
            0);
  }
  CHECK(pinned() == 3 << 20);
  CHECK(ring.Call(Op::cuCtxDestroy_v2, wire::cuCtxDestroy_v2{2, 0}) == 0);
  CHECK(pinned() == 1 << 20);
}

TEST_CASE("A context ends when no work of another context can use its memory and code") {
  SessionFixture f;
  auto session = f.Open();
  RingTestClient& ring = *session->ring;
  ring.context = 1;
  ring.Send(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{1, 1, 0, 0});
  ring.context = 2;
  wire::cuMemAlloc_v2_Reply memory{};
  REQUIRE(ring.Call(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{4096}, &memory) == 0);
  const KernelId kernel = SessionFixture::LoadKernel(*session, "add");
  ring.context = 1;
  ring.Send(Op::cuLaunchHostFunc, wire::cuLaunchHostFunc{1, 1, 1, {1, 0, 0}});
  const uint64_t parameters[2] = {memory.address, 3};
  ring.Send(Op::cuLaunchKernelEx, Launch(kernel),
            {reinterpret_cast<const uint8_t*>(parameters), sizeof(parameters)});
  ReplySlot& slot = ring.slot(1);
  slot.state.store(kReplyPending);
  const wire::cuCtxDestroy_v2 end{2, 0};
  ring.Submit(static_cast<uint16_t>(Op::cuCtxDestroy_v2), &end, sizeof(end), {}, 1);
  wire::cuMemAlloc_v2_Reply more{};
  REQUIRE(ring.Call(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{4096}, &more) == 0);
  CHECK(slot.state.load(std::memory_order_acquire) == kReplyPending);
  ring.fence(1).store(1);
  CHECK(ring.Await(1) == 0);
  CHECK_FALSE(session->ended->get_future().wait_for(std::chrono::milliseconds(0)) ==
              std::future_status::ready);
}

// Work that comes while a call waits to free something, and that the daemon keeps, must not reach it.
struct KeptWork : SessionFixture {
  KeptWork() : SessionFixture("auto", 0) {
    session = Open();
    RingTestClient& ring = *session->ring;
    for (StreamId stream : {1, 2}) {
      ring.Send(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{stream, 1, 0, 0});
    }
    // The call that frees waits for stream 1.
    ring.Send(Op::cuLaunchHostFunc, wire::cuLaunchHostFunc{1, 1, 1, {1, 0, 0}});
  }
  // Ends the wait of the call, then that of stream 2.
  template <typename Args>
  void Free(Op op, const Args& args, const std::function<void()>& work) {
    RingTestClient& ring = *session->ring;
    ReplySlot& slot = ring.slot(1);
    slot.state.store(kReplyPending);
    ring.Submit(static_cast<uint16_t>(op), &args, sizeof(args), {}, 1);
    ring.Send(Op::cuLaunchHostFunc, wire::cuLaunchHostFunc{2, 2, 1, {1, 3, 0}});
    work();
    wire::cuMemAlloc_v2_Reply more{};
    REQUIRE(ring.Call(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{4096}, &more) == 0);
    REQUIRE(slot.state.load(std::memory_order_acquire) == kReplyPending);
    ring.fence(1).store(1);
    REQUIRE(ring.Await(1) == 0);
    ring.fence(2).store(1);
    ring.Wake();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  std::unique_ptr<OpenedSession> session;
};

TEST_CASE_METHOD(KeptWork, "Kept launches do not outlive their library") {
  static std::atomic<bool> ran;
  ran = false;
  device.recipes.push_back(
      {"late", 0, [](InstantSpace&, const LaunchShape&, const std::byte*) { ran = true; }});
  wire::cuLibraryLoadData load{};
  load.context = 1;
  load.image_bytes = 4;
  wire::cuLibraryLoadData_Reply library{};
  std::memcpy(&library, Call(*session, Op::cuLibraryLoadData, load, "code").second.data(),
              sizeof(library));
  wire::cuLibraryGetKernel_Reply kernel{};
  std::memcpy(
      &kernel,
      Call(*session, Op::cuLibraryGetKernel, wire::cuLibraryGetKernel{library.library, 0}, "late")
          .second.data(),
      sizeof(kernel));
  // A control call frees the library, so that the reply comes to this thread.
  std::thread caller([&] {
    // The launch may be refused, and its error is then this call's.
    (void)Call(*session, Op::cuLibraryUnload, wire::cuLibraryUnload{library.library, 0});
  });
  const auto found = [&] {
    return Call(*session, Op::cuLibraryGetKernel, wire::cuLibraryGetKernel{library.library, 0},
                "late")
               .first == 0;
  };
  while (found()) std::this_thread::yield();
  RingTestClient& ring = *session->ring;
  ring.Send(Op::cuLaunchHostFunc, wire::cuLaunchHostFunc{2, 2, 1, {1, 3, 0}});
  wire::cuLaunchKernelEx launch = Launch(kernel.kernel);
  launch.stream = 2;
  ring.Send(Op::cuLaunchKernelEx, launch);
  // The record was read, whether or not the launch was refused.
  wire::cuMemAlloc_v2_Reply more{};
  (void)ring.Call(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{4096}, &more);
  ring.fence(1).store(1);
  caller.join();
  const int left = device.libraries;
  ring.fence(2).store(1);
  ring.Wake();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  // Either the launch was refused, or its library still exists.
  CHECK((!ran || left == 1));
}

TEST_CASE_METHOD(KeptWork, "Kept copies do not reach pinned memory that was freed") {
  RingTestClient& ring = *session->ring;
  // So much that the daemon does not keep it for later.
  wire::cuMemHostAlloc_Reply pinned{};
  REQUIRE(ring.Call(Op::cuMemHostAlloc, wire::cuMemHostAlloc{64 << 20, 0, 0}, &pinned) == 0);
  wire::cuMemAlloc_v2_Reply memory{};
  REQUIRE(ring.Call(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{4096}, &memory) == 0);
  Free(Op::cuMemFreeHost, wire::cuMemFreeHost{pinned.address}, [&] {
    ring.Send(Op::cuMemcpyAsync, wire::cuMemcpyAsync{{memory.address, wire::kAddress, 0},
                                                     {pinned.address, wire::kAddress, 0},
                                                     8,
                                                     2,
                                                     0,
                                                     {0, kNoFence, 0}});
  });
  CHECK_FALSE(session->ended->get_future().wait_for(std::chrono::milliseconds(0)) ==
              std::future_status::ready);
}

}  // namespace
}  // namespace detshare
