#include "server/daemon.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "coroutine_runtime/status_cuda.h"
#include "proto/wire/common.h"
#include "proto/wire/context.h"
#include "proto/wire/copy.h"
#include "proto/wire/event.h"
#include "proto/wire/library.h"
#include "proto/wire/memory.h"
#include "proto/wire/stream.h"
#include "server/sessions/session_manager.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/instant_device.h"

namespace detshare {
namespace {

using wire::kAddress;
using wire::kInline;
using wire::kStaging;

TEST_CASE("A session is granted with what its client needs to know") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  client.tenant = "alice";
  REQUIRE(client.Open());
  CHECK(client.grant.session() == 1);
  CHECK(client.grant.driver_version() == 13000);
  CHECK(client.grant.pinned_base() == TestWindows().pinned_base);
  REQUIRE(client.grant.devices_size() == 1);
  const proto::Device& device = client.grant.devices(0);
  CHECK(device.name() == "instant");
  CHECK(device.uuid().size() == 16);
  CHECK(device.attributes().at(1) == 1024);
  CHECK(device.memory_base() == TestWindows().device_base);
  CHECK(client.ring->header().magic == kSessionMagic);
  struct stat status;
  REQUIRE(stat((client.directory + "/session").c_str(), &status) == 0);
  CHECK(status.st_uid == getuid());
  CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("Memory is allocated, filled, copied both ways and freed") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  RingTestClient& ring = *client.ring;
  client.CreateStream(1);
  const uint64_t a = client.Allocate(1 << 20);
  const uint64_t b = client.Allocate(1 << 20);
  REQUIRE(a != 0);
  REQUIRE(b != 0);
  CHECK(a != b);

  std::memset(ring.staging(), 7, 4096);
  ring.Send(Op::cuMemcpyAsync, client.CopyOf({a, kAddress, 0}, {0, kStaging, 0}, 4096, 1));
  const std::string text = "sixteen bytes!!\n";
  ring.Send(Op::cuMemcpyAsync, client.CopyOf({a, kAddress, 0}, {0, kInline, 0}, 16, 1),
            {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  ring.Send(Op::cuMemsetD2D32Async, wire::cuMemsetD2D32Async{a + 16, 0, 4, 1, 0x01020304, 4, 1, 0});
  ring.Send(Op::cuMemcpyAsync, client.CopyOf({b + 100, kAddress, 0}, {a, kAddress, 0}, 4096, 1));
  ring.Send(Op::cuMemcpyAsync,
            client.CopyOf({8192, kStaging, 0}, {b + 100, kAddress, 0}, 4096, 1, 9, 5));
  REQUIRE(Eventually([&] { return ring.fence(9).load() == 5; }));
  CHECK(std::memcmp(ring.staging() + 8192, text.data(), 16) == 0);
  CHECK(ring.staging()[8192 + 16] == 4);
  CHECK(ring.staging()[8192 + 32] == 7);

  CHECK(ring.Call(Op::cuMemFree_v2, wire::cuMemFree_v2{a}) == 0);
  CHECK(ring.Call(Op::cuMemFree_v2, wire::cuMemFree_v2{a}) == kCudaErrorInvalidValue);
  CHECK(ring.header().sticky_error.load() == 0);
}

TEST_CASE("A pitched copy moves its rows and slices only") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  RingTestClient& ring = *client.ring;
  client.CreateStream(1);
  const uint64_t a = client.Allocate(65536);
  for (int i = 0; i < 24; ++i) ring.staging()[i] = static_cast<uint8_t>(i + 1);
  wire::cuMemcpy3DAsync_v2 copy{};
  copy.destination = {{a, kAddress, 0}, 256, 1024};
  copy.source = {{0, kStaging, 0}, 4, 12};
  copy.width = 4;
  copy.height = 3;
  copy.depth = 2;
  copy.stream = 1;
  copy.signal = {1, kNoFence, 0};
  ring.Send(Op::cuMemcpy3DAsync_v2, copy);
  CHECK(client.Synchronize(1) == 0);
  const uint8_t* memory = reinterpret_cast<const uint8_t*>(a);
  CHECK(memory[0] == 1);
  CHECK(memory[4] == 0);
  CHECK(memory[256] == 5);
  CHECK(memory[1024 + 512 + 3] == 24);
}

TEST_CASE("A kernel is loaded by a control call, launched through the ring, and unloaded") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  RingTestClient& ring = *client.ring;
  client.CreateStream(1);
  const LibraryId library = client.Load();
  REQUIRE(library != 0);
  CHECK(daemon.devices[0]->libraries.load() == 1);
  const KernelId kernel = client.GetKernel(library, "add");
  REQUIRE(kernel != 0);
  CHECK(client.GetKernel(library, "add") == kernel);
  CHECK(client.GetKernel(library, "missing") == 0);
  auto [status, names] =
      client.Call(Op::cuLibraryEnumerateKernels, wire::cuLibraryEnumerateKernels{library, 0});
  CHECK(names.body() == std::string("add\0fault\0", 10));
  auto [ok, global] =
      client.Call(Op::cuLibraryGetGlobal, wire::cuLibraryGetGlobal{library, 0}, "counter");
  wire::cuLibraryGetGlobal_Reply where{};
  REQUIRE(global.body().size() == sizeof(where));
  std::memcpy(&where, global.body().data(), sizeof(where));
  CHECK(where.bytes == 8);

  const uint64_t parameters[2] = {where.address, 20};
  const std::span<const uint8_t> payload(reinterpret_cast<const uint8_t*>(parameters),
                                         sizeof(parameters));
  for (int i = 0; i < 1000; ++i)
    ring.Send(Op::cuLaunchKernelEx, client.LaunchOf(kernel, 1), payload);
  ring.Send(Op::cuMemcpyAsync, client.CopyOf({0, kStaging, 0}, {where.address, kAddress, 0}, 8, 1));
  CHECK(client.Synchronize(1) == 0);
  uint64_t counter;
  std::memcpy(&counter, ring.staging(), 8);
  CHECK(counter == 20000);
  // The text ring has what the library printed while it was loaded.
  CHECK(ring.header().output_tail.load() == 11);

  auto [unloaded, reply] = client.Call(Op::cuLibraryUnload, wire::cuLibraryUnload{library, 0});
  CHECK(unloaded.ok());
  CHECK(reply.result() == 0);
  CHECK(daemon.devices[0]->libraries.load() == 0);
  CHECK(ring.Call(Op::cuLaunchKernelEx, client.LaunchOf(kernel, 1), payload) ==
        kCudaErrorInvalidHandle);
}

TEST_CASE("Code that does not compile returns its log") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  wire::cuLibraryLoadData args{};
  args.image_bytes = 5;
  args.error_log_bytes = 7;
  auto [status, reply] = client.Call(Op::cuLibraryLoadData, args, "wrong");
  CHECK(status.ok());
  CHECK(reply.result() == kCudaErrorInvalidPtx);
  CHECK(reply.body().substr(sizeof(wire::cuLibraryLoadData_Reply)) == "this is");
}

TEST_CASE("Pinned memory is a file that both sides map at the same address") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  RingTestClient& ring = *client.ring;
  client.CreateStream(1);
  wire::cuMemHostAlloc_Reply pinned{};
  REQUIRE(ring.Call(Op::cuMemHostAlloc, wire::cuMemHostAlloc{10000, 0, 0}, &pinned) == 0);
  CHECK(pinned.address == client.grant.pinned_base());
  CHECK(pinned.file_bytes == 12288);
  CHECK(std::filesystem::file_size(client.directory + "/pinned." + std::to_string(pinned.file)) ==
        12288);
  // Daemon and test are one process, so the daemon's mapping is the one that the client would see.
  std::memset(reinterpret_cast<void*>(pinned.address), 3, 10000);
  const uint64_t a = client.Allocate(10000);
  ring.Send(Op::cuMemcpyAsync,
            client.CopyOf({a, kAddress, 0}, {pinned.address, kAddress, 0}, 10000, 1));
  CHECK(client.Synchronize(1) == 0);
  CHECK(*reinterpret_cast<uint8_t*>(a + 9999) == 3);
  CHECK(ring.Call(Op::cuMemFreeHost, wire::cuMemFreeHost{pinned.address}) == 0);
  CHECK(ring.Call(Op::cuMemFreeHost, wire::cuMemFreeHost{pinned.address}) ==
        kCudaErrorInvalidValue);
  CHECK(ring.Call(Op::cuMemFreeHost, wire::cuMemFreeHost{12345}) == kCudaErrorInvalidValue);
}

TEST_CASE("Events are recorded, signalled and timed") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  RingTestClient& ring = *client.ring;
  client.CreateStream(1);
  client.CreateStream(2);
  ring.Send(Op::cuEventCreate, wire::cuEventCreate{1, 1, 0, 0});
  ring.Send(Op::cuEventCreate, wire::cuEventCreate{2, 1, 0, 0});
  ring.Send(Op::cuEventRecordWithFlags, wire::cuEventRecordWithFlags{1, 1, {1, 20, 0}});
  ring.Send(Op::cuStreamWaitEvent, wire::cuStreamWaitEvent{2, 1});
  ring.Send(Op::cuEventRecordWithFlags, wire::cuEventRecordWithFlags{2, 2, {1, 21, 0}});
  REQUIRE(Eventually([&] { return ring.fence(21).load() == 1; }));
  wire::cuEventElapsedTime_v2_Reply elapsed{};
  CHECK(ring.Call(Op::cuEventElapsedTime_v2, wire::cuEventElapsedTime_v2{1, 2}, &elapsed) == 0);
  CHECK(elapsed.milliseconds == 1.5f);
  ring.Send(Op::cuEventDestroy_v2, wire::cuEventDestroy_v2{1, 0});
  CHECK(ring.Call(Op::cuEventElapsedTime_v2, wire::cuEventElapsedTime_v2{1, 2}) ==
        kCudaErrorInvalidHandle);
}

TEST_CASE("Destroying a context ends all of its objects") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  RingTestClient& ring = *client.ring;
  client.CreateStream(1);
  const uint64_t a = client.Allocate(4096);
  const LibraryId library = client.Load();
  wire::cuMemHostAlloc_Reply pinned{};
  REQUIRE(ring.Call(Op::cuMemHostAlloc, wire::cuMemHostAlloc{4096, 0, 0}, &pinned) == 0);
  CHECK(ring.Call(Op::cuCtxSynchronize, wire::cuCtxSynchronize{1, 0, {1, 3, 0}}) == 0);
  CHECK(ring.fence(3).load() == 1);
  REQUIRE(ring.Call(Op::cuCtxDestroy_v2, wire::cuCtxDestroy_v2{1, 0}) == 0);
  CHECK(daemon.devices[0]->libraries.load() == 0);
  CHECK(client.GetKernel(library, "add") == 0);
  CHECK(ring.Call(Op::cuMemFree_v2, wire::cuMemFree_v2{a}) == kCudaErrorInvalidValue);
  CHECK(ring.Call(Op::cuMemFreeHost, wire::cuMemFreeHost{pinned.address}) ==
        kCudaErrorInvalidValue);
  CHECK(client.Synchronize(1) == kCudaErrorInvalidHandle);
  // The ids are free again.
  client.CreateStream(1);
  CHECK(client.Synchronize(1) == 0);
}

TEST_CASE("A session that ends leaves nothing behind") {
  TestDaemon daemon;
  {
    TestClient client(daemon.socket());
    REQUIRE(client.Open());
    client.CreateStream(1);
    client.Allocate(64 << 20);
    client.Load();
    wire::cuMemHostAlloc_Reply pinned{};
    REQUIRE(client.ring->Call(Op::cuMemHostAlloc, wire::cuMemHostAlloc{1 << 20, 0, 0}, &pinned) ==
            0);
    CHECK(daemon.session_directories() == 1);
    CHECK(daemon.devices[0]->used.load() > 0);
    client.Close();
  }
  CHECK(daemon.daemon->manager().WaitUntilEmpty(std::chrono::seconds(20)));
  CHECK(daemon.devices[0]->used.load() == 0);
  CHECK(daemon.devices[0]->spaces.load() == 0);
  CHECK(daemon.devices[0]->libraries.load() == 0);
  CHECK(daemon.session_directories() == 0);
}

TEST_CASE("A connection that breaks ends its session") {
  TestDaemon daemon;
  const int fd = ConnectTo(daemon.socket());
  REQUIRE(fd >= 0);
  {
    TestClient client(daemon.socket());
    REQUIRE(client.Open());
    // A half-written record, as when the process is killed while it writes.
    reinterpret_cast<RecordHeader*>(client.ring->line(client.ring->tail()))->bytes = 640;
    client.ring->header().tail.store(640);
  }
  CHECK(daemon.daemon->manager().WaitUntilEmpty(std::chrono::seconds(20)));
  close(fd);
}

TEST_CASE("The daemon tells its clients when it ends, and removes its files") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  client.ring->slot(4).state.store(kReplyPending);
  bool empty = false;
  std::thread stopper([&] { empty = daemon.daemon->Stop(std::chrono::seconds(20)); });
  const auto ended = client.AwaitEnd();
  stopper.join();
  CHECK(empty);
  REQUIRE(ended.has_value());
  CHECK(ended->result() == kCudaErrorSystemNotReady);
  CHECK(client.ring->header().closed.load() == 1);
  CHECK(client.ring->slot(4).result == kCudaErrorSystemNotReady);
  CHECK(client.ring->fence(0).load() == UINT64_MAX);
  CHECK(ConnectTo(daemon.socket()) < 0);
  daemon.daemon.reset();
  CHECK_FALSE(std::filesystem::exists(daemon.directory.path + "/sessions"));
  CHECK_FALSE(std::filesystem::exists(daemon.socket()));
}

TEST_CASE("Files that an earlier daemon left are removed at the start") {
  TestDirectory directory;
  std::filesystem::create_directories(directory.path + "/sessions/17");
  std::filesystem::copy_file("/proc/self/cmdline", directory.path + "/sessions/17/session");
  TestDaemon daemon(
      [&](Daemon::Options& options) { options.server.runtime_directory = directory.path; });
  CHECK_FALSE(std::filesystem::exists(directory.path + "/sessions/17"));
}

TEST_CASE("Two daemons do not share a socket") {
  TestDaemon daemon;
  Daemon::Options options;
  options.socket = daemon.socket();
  options.server.windows = TestWindows();
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::make_unique<InstantDevice>());
  const auto second = Daemon::Start(std::move(devices), options);
  REQUIRE_FALSE(second.ok());
  CHECK(absl::IsFailedPrecondition(second.status()));
  // The first session goes on.
  TestClient client(daemon.socket());
  CHECK(client.Open());
}

TEST_CASE("Two daemons do not keep their files in one directory") {
  TestDirectory directory;
  const auto start = [&](const std::string& name) {
    Daemon::Options options;
    options.socket = directory.path + "/" + name;
    options.server.windows = TestWindows();
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::make_unique<InstantDevice>());
    return Daemon::Start(std::move(devices), options);
  };
  auto first = start("a.sock");
  REQUIRE(first.ok());
  CHECK(absl::IsFailedPrecondition(start("b.sock").status()));
  CHECK(std::filesystem::exists(directory.path + "/sessions"));
  first->reset();
  CHECK(start("c.sock").ok());
}

TEST_CASE("Status shows devices and sessions") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  client.tenant = "alice";
  client.request.set_program("train.py\n\x1b[2J");
  REQUIRE(client.Open());
  client.CreateStream(1);
  client.Allocate(8 << 20);
  const KernelId kernel = client.GetKernel(client.Load(), "add");
  const uint64_t parameters[2] = {client.Allocate(8), 1};
  client.ring->Send(Op::cuLaunchKernelEx, client.LaunchOf(kernel, 1),
                    {reinterpret_cast<const uint8_t*>(parameters), sizeof(parameters)});
  client.Synchronize(1);

  TestClient onlooker(daemon.socket());
  grpc::ClientContext context;
  proto::Status status;
  REQUIRE(AdminOf(onlooker)->GetStatus(&context, proto::GetStatusRequest(), &status).ok());
  CHECK(status.pid() == getpid());
  CHECK(status.backend() == "instant");
  CHECK(status.abi_version() == kAbiVersion);
  REQUIRE(status.devices_size() == 1);
  CHECK(status.devices(0).state() == "ok");
  CHECK(status.devices(0).used_memory() >= 8 << 20);
  CHECK(status.devices(0).uuid().substr(0, 6) == "GPU-ab");
  REQUIRE(status.sessions_size() == 1);
  const proto::SessionStatus& session = status.sessions(0);
  CHECK(session.tenant() == "alice");
  CHECK(session.program() == "train.py??[2J");
  CHECK(session.pid() == getpid());
  CHECK(session.uid() == getuid());
  CHECK(session.kernels() == 1);
  CHECK(session.device_memory() >= 8 << 20);
  CHECK(session.state() == "running");
}

TEST_CASE("A session sees the devices that it asks for, in its order") {
  TestDaemon daemon({}, 3);
  TestClient client(daemon.socket());
  client.request.add_device_ids("2");
  client.request.add_device_ids("GPU-AB000000-0000-0000-0000-000000000000");
  REQUIRE(client.Open());
  REQUIRE(client.grant.devices_size() == 2);
  CHECK(client.grant.devices(0).uuid()[15] == 2);
  CHECK(client.grant.devices(1).uuid()[15] == 0);
  CHECK(client.grant.devices(0).memory_base() > client.grant.devices(1).memory_base());

  TestClient wrong(daemon.socket());
  wrong.request.add_device_ids("3");
  CHECK_FALSE(wrong.Open());
  CHECK(wrong.status().error_code() == grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace detshare
