// Clients that break the rules lose their session. Other sessions notice nothing.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <random>
#include <utility>
#include <vector>

#include "coroutine_runtime/status_cuda.h"
#include "proto/content_hash.h"
#include "proto/wire/common.h"
#include "proto/wire/context.h"
#include "proto/wire/copy.h"
#include "proto/wire/event.h"
#include "proto/wire/launch.h"
#include "proto/wire/library.h"
#include "proto/wire/memory.h"
#include "proto/wire/stream.h"
#include "server/session/image_store.h"
#include "server/sessions/session_manager.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/instant_device.h"

namespace detshare {
namespace {

using wire::kAddress;
using wire::kInline;
using wire::kStaging;

// Has a neighbour that must not notice anything.
// The length of a kernel's name that does not fit into a reply slot.
constexpr size_t kLongName = 1000;

struct HostileClientFixture {
  HostileClientFixture() : daemon({}, 1), neighbour(daemon.socket()), client(daemon.socket()) {
    daemon.devices[0]->recipes.push_back({std::string(kLongName, 'k'), 0, {}});
    REQUIRE(neighbour.Open());
    neighbour.CreateStream(1);
    secret = neighbour.Allocate(4096);
    REQUIRE(client.Open());
    client.CreateStream(1);
    memory = client.Allocate(1 << 20);
  }
  void CheckNeighbour() {
    neighbour.ring->Send(Op::cuMemsetD2D32Async,
                         wire::cuMemsetD2D32Async{secret, 0, 4096, 1, 9, 1, 1, 0});
    CHECK(neighbour.Synchronize(1) == 0);
    CHECK(*reinterpret_cast<uint8_t*>(secret + 4095) == 9);
    CHECK(neighbour.ring->header().sticky_error.load() == 0);
  }

  TestDaemon daemon;
  TestClient neighbour, client;
  uint64_t secret = 0, memory = 0;
};

TEST_CASE("A malformed ring ends the session with its name, and no other") {
  HostileClientFixture f;
  RingTestClient& ring = *f.client.ring;
  std::string expected;
  SECTION("noise") {
    const uint32_t noise = 0xDEADBEEF;
    std::memcpy(ring.line(ring.tail()), &noise, sizeof(noise));
    ring.Wake();
    expected = "first word";
  }
  SECTION("a length beyond the ring") {
    RawHeader header;
    header.bytes = 0x7FFFFFC0;
    ring.SubmitRaw(header, {}, kRingLine);
    expected = "too long";
  }
  SECTION("an operation that does not exist") {
    ring.Submit(4242, &expected, 8, {}, kNoReply);
    expected = "does not exist";
  }
  SECTION("an operation of the ring in a control call") {
    f.client.Call(Op::cuMemFree_v2, wire::cuMemFree_v2{1});
    expected = "wrong transport";
  }
  SECTION("arguments of the wrong length") {
    const uint64_t args[2] = {};
    ring.Submit(static_cast<uint16_t>(Op::cuMemAlloc_v2), args, 16, {}, kNoReply);
    expected = "16 bytes of arguments";
  }
  SECTION("a device that the session does not have") {
    ring.device = 1;
    ring.Send(Op::cuMemAlloc_v2, wire::cuMemAlloc_v2{1});
    expected = "device 1 of 1";
  }
  SECTION("a truncated session file") {
    const std::string path = f.client.directory + "/session";
    // The daemon allocates the file piece by piece. The next piece would extend it again.
    REQUIRE(Eventually([&path] {
      struct stat file;
      return stat(path.c_str(), &file) == 0 && file.st_blocks * 512 >= file.st_size;
    }));
    REQUIRE(truncate(path.c_str(), kPageBytes) == 0);
    // The daemon accesses memory that is gone.
    proto::CallRequest call;
    f.client.Call(Op::cuLibraryUnload, wire::cuLibraryUnload{1, 0});
    expected = "truncated";
  }
  const auto ended = f.client.AwaitEnd();
  REQUIRE(ended.has_value());
  CHECK(ended->result() != 0);
  CHECK_THAT(ended->reason(), Catch::Contains(expected));
  f.CheckNeighbour();
}

TEST_CASE("Addresses and offsets that are not the session's are refused") {
  HostileClientFixture f;
  RingTestClient& ring = *f.client.ring;
  const uint64_t staging = ring.header().staging_bytes;
  const auto copy = [&](wire::Location destination, wire::Location source, uint64_t bytes) {
    return ring.Call(Op::cuMemcpyAsync, f.client.CopyOf(destination, source, bytes, 1),
                     std::span<const uint8_t>());
  };
  const wire::Location mine{f.memory, kAddress, 0};
  CHECK(copy(mine, {f.secret, kAddress, 0}, 16) == kCudaErrorInvalidValue);
  CHECK(copy({f.secret, kAddress, 0}, mine, 16) == kCudaErrorInvalidValue);
  CHECK(copy(mine, {reinterpret_cast<uint64_t>(&f), kAddress, 0}, 16) == kCudaErrorInvalidValue);
  CHECK(copy(mine, {0, kAddress, 0}, 16) == kCudaErrorInvalidValue);
  CHECK(copy(mine, {UINT64_MAX - 8, kAddress, 0}, 16) == kCudaErrorInvalidValue);
  CHECK(copy(mine, mine, UINT64_MAX) == kCudaErrorInvalidValue);
  CHECK(copy(mine, mine, 1 << 30) == kCudaErrorInvalidValue);
  CHECK(copy(mine, {staging - 8, kStaging, 0}, 16) == kCudaErrorInvalidValue);
  CHECK(copy(mine, {UINT64_MAX - 7, kStaging, 0}, 16) == kCudaErrorInvalidValue);
  CHECK(copy({staging, kStaging, 0}, mine, 1) == kCudaErrorInvalidValue);
  // The area is made in two parts. The second part exists only after its first use.
  const uint64_t border = staging / 4;
  CHECK(copy(mine, {border - 8, kStaging, 0}, 16) == kCudaErrorInvalidValue);
  CHECK(copy(mine, {border - 8, kStaging, 0}, 8) == 0);
  CHECK(copy(mine, {border, kStaging, 0}, staging - border) == 0);
  CHECK(copy(mine, {border - 8, kStaging, 0}, 16) == kCudaErrorInvalidValue);
  CHECK(copy(mine, {0, kInline, 0}, 16) == kCudaErrorInvalidValue);
  CHECK(copy({0, kInline, 0}, mine, 0) == 0);
  CHECK(copy(mine, {0, 4, 0}, 16) == kCudaErrorInvalidValue);

  wire::cuMemcpy3DAsync_v2 pitched{};
  pitched.destination = {mine, 1024, 1 << 16};
  pitched.source = {{border, kStaging, 0}, 1024, 1 << 15};
  pitched.width = pitched.height = pitched.depth = 16;
  pitched.stream = 1;
  pitched.signal.index = kNoFence;
  wire::cuMemcpy3DAsync_v2 wrong = pitched;
  wrong.source.row_pitch = UINT64_MAX / 4;
  CHECK(ring.Call(Op::cuMemcpy3DAsync_v2, wrong) == kCudaErrorInvalidValue);
  wrong = pitched;
  wrong.depth = 1 << 20;
  CHECK(ring.Call(Op::cuMemcpy3DAsync_v2, wrong) == kCudaErrorInvalidValue);
  wrong = pitched;
  wrong.height = UINT64_MAX;
  CHECK(ring.Call(Op::cuMemcpy3DAsync_v2, wrong) == kCudaErrorInvalidValue);
  wrong = pitched;
  wrong.source.location.address = border - 64;
  CHECK(ring.Call(Op::cuMemcpy3DAsync_v2, wrong) == kCudaErrorInvalidValue);
  CHECK(ring.Call(Op::cuMemcpy3DAsync_v2, pitched) == 0);

  const auto fill = [&](wire::cuMemsetD2D32Async args) {
    return ring.Call(Op::cuMemsetD2D32Async, args);
  };
  CHECK(fill({f.secret, 0, 1, 1, 0, 4, 1, 0}) == kCudaErrorInvalidValue);
  CHECK(fill({f.memory, 0, UINT64_MAX / 2, 1, 0, 4, 1, 0}) == kCudaErrorInvalidValue);
  CHECK(fill({f.memory, UINT64_MAX, 1, 3, 0, 1, 1, 0}) == kCudaErrorInvalidValue);
  CHECK(fill({f.memory, 0, 1, 1, 0, 3, 1, 0}) == kCudaErrorInvalidValue);
  CHECK(fill({f.memory + 1, 0, 1, 1, 0, 4, 1, 0}) == kCudaErrorInvalidValue);
  CHECK(fill({f.memory, 0, 1, 1, 0, 4, 1, 0}) == 0);

  CHECK(ring.Call(Op::cuMemFree_v2, wire::cuMemFree_v2{f.secret}) == kCudaErrorInvalidValue);
  CHECK(ring.Call(Op::cuMemFree_v2, wire::cuMemFree_v2{f.memory + 512}) == kCudaErrorInvalidValue);
  CHECK(ring.header().sticky_error.load() == 0);
  f.CheckNeighbour();
}

TEST_CASE("Fences that do not exist are refused") {
  HostileClientFixture f;
  RingTestClient& ring = *f.client.ring;
  const uint32_t count = ring.header().fence_count;
  CHECK(ring.Call(Op::cuStreamSynchronize, wire::cuStreamSynchronize{1, 0, {1, count, 0}}) ==
        kCudaErrorInvalidValue);
  CHECK(ring.Call(Op::cuCtxSynchronize, wire::cuCtxSynchronize{1, 0, {1, count + 7, 0}}) ==
        kCudaErrorInvalidValue);
  CHECK(ring.Call(Op::cuLaunchHostFunc, wire::cuLaunchHostFunc{1, count, 1, {1, 0, 0}}) ==
        kCudaErrorInvalidValue);
  CHECK(ring.Call(Op::cuLaunchHostFunc, wire::cuLaunchHostFunc{1, 0, 1, {1, kNoFence, 0}}) ==
        kCudaErrorInvalidValue);
  ring.Send(Op::cuEventCreate, wire::cuEventCreate{1, 1, 0, 0});
  CHECK(ring.Call(Op::cuEventRecordWithFlags, wire::cuEventRecordWithFlags{1, 1, {1, count, 0}}) ==
        kCudaErrorInvalidValue);
}

TEST_CASE("Handles that the session does not have are refused") {
  HostileClientFixture f;
  RingTestClient& ring = *f.client.ring;
  const LibraryId theirs = f.neighbour.Load();
  const KernelId kernel = f.neighbour.GetKernel(theirs, "add");
  REQUIRE(kernel != 0);
  CHECK(ring.Call(Op::cuLaunchKernelEx, f.client.LaunchOf(kernel, 1)) == kCudaErrorInvalidHandle);
  CHECK(f.client.GetKernel(theirs, "add") == 0);
  CHECK(f.client.Synchronize(99) == kCudaErrorInvalidHandle);
  CHECK(ring.Call(Op::cuStreamDestroy_v2, wire::cuStreamDestroy_v2{99, 0}) ==
        kCudaErrorInvalidHandle);
  CHECK(ring.Call(Op::cuEventDestroy_v2, wire::cuEventDestroy_v2{99, 0}) ==
        kCudaErrorInvalidHandle);
  CHECK(ring.Call(Op::cuKernelSetAttribute, wire::cuKernelSetAttribute{UINT32_MAX, 0, 0, 0}) ==
        kCudaErrorInvalidHandle);
  CHECK(ring.Call(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{1, 1, 0, 0}) ==
        kCudaErrorInvalidValue);
  CHECK(ring.Call(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{2, 0, 0, 0}) ==
        kCudaErrorInvalidContext);
  CHECK(ring.Call(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{2, 1, 8, 0}) ==
        kCudaErrorInvalidValue);
  // A launch with fewer bytes of parameters than the kernel reads.
  const KernelId mine = f.client.GetKernel(f.client.Load(), "add");
  CHECK(ring.Call(Op::cuLaunchKernelEx, f.client.LaunchOf(mine, 1)) == kCudaErrorInvalidValue);
  f.CheckNeighbour();
}

TEST_CASE("Too many objects of any kind are CUDA_ERROR_OUT_OF_MEMORY") {
  TestDaemon daemon([](Daemon::Options& options) {
    SessionLimits& limits = options.server.limits;
    limits.contexts = 2;
    limits.streams = 3;
    limits.events = 3;
    limits.libraries = 2;
    limits.image_bytes = 100;
    limits.pinned.bytes = 1 << 20;
  });
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  RingTestClient& ring = *client.ring;
  for (StreamId id = 1; id <= 3; ++id) client.CreateStream(id);
  CHECK(ring.Call(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{4, 1, 0, 0}) ==
        kCudaErrorOutOfMemory);
  ring.Send(Op::cuStreamDestroy_v2, wire::cuStreamDestroy_v2{2, 0});
  CHECK(ring.Call(Op::cuStreamCreateWithPriority, wire::cuStreamCreateWithPriority{4, 1, 0, 0}) ==
        0);
  for (EventId id = 1; id <= 3; ++id)
    ring.Send(Op::cuEventCreate, wire::cuEventCreate{id, 1, 0, 0});
  CHECK(ring.Call(Op::cuEventCreate, wire::cuEventCreate{4, 1, 0, 0}) == kCudaErrorOutOfMemory);
  CHECK(ring.Call(Op::cuCtxSynchronize, wire::cuCtxSynchronize{2, 0, {0, kNoFence, 0}}) == 0);
  CHECK(ring.Call(Op::cuCtxSynchronize, wire::cuCtxSynchronize{3, 0, {0, kNoFence, 0}}) ==
        kCudaErrorOutOfMemory);
  CHECK(ring.Call(Op::cuMemHostAlloc, wire::cuMemHostAlloc{2 << 20, 0, 0}) ==
        kCudaErrorOutOfMemory);
  CHECK(ring.Call(Op::cuMemHostAlloc, wire::cuMemHostAlloc{UINT64_MAX, 0, 0}) ==
        kCudaErrorOutOfMemory);
  int result = 0;
  client.Allocate(UINT64_MAX, &result);
  CHECK(result == kCudaErrorOutOfMemory);
  client.Allocate(uint64_t{2} << 30, &result);
  CHECK(result == kCudaErrorOutOfMemory);
  CHECK(client.Load("code" + std::string(200, 'x')) == 0);
  CHECK(client.Load() != 0);
  CHECK(client.Load() != 0);
  CHECK(client.Load() == 0);
  CHECK(ring.header().sticky_error.load() == 0);
}

TEST_CASE("A control call only works on the connection of its session") {
  HostileClientFixture f;
  auto [status, reply] = f.client.Call(Op::cuLibraryUnload, wire::cuLibraryUnload{1, 0}, "",
                                       f.neighbour.grant.session());
  CHECK(status.code() == absl::StatusCode::kNotFound);
  auto [none, nothing] = f.client.Call(Op::cuLibraryUnload, wire::cuLibraryUnload{1, 0}, "", 999);
  CHECK(none.code() == absl::StatusCode::kNotFound);
  f.CheckNeighbour();
}

TEST_CASE("A reply beyond its slot is taken once, and only by the connection of its session") {
  HostileClientFixture f;
  const std::string name(kLongName, 'k');
  const LibraryId library = f.client.Load();
  const std::vector<uint8_t> bytes(name.begin(), name.end());
  REQUIRE(f.client.ring->Call(Op::cuLibraryGetKernel, wire::cuLibraryGetKernel{library, 0}, bytes,
                              5) == 0);
  const uint32_t size = f.client.ring->slot(5).bytes;
  CHECK(size == sizeof(wire::cuLibraryGetKernel_Reply) + name.size());
  const auto take = [&](TestClient& by, uint32_t slot, std::string* body) {
    grpc::ClientContext context;
    proto::TakeReplyRequest request;
    request.set_session(f.client.grant.session());
    request.set_slot(slot);
    proto::LongReply reply;
    const grpc::Status status = ControlOf(by)->TakeReply(&context, request, &reply);
    *body = reply.body();
    return status.error_code();
  };
  std::string body;
  CHECK(take(f.neighbour, 5, &body) == grpc::StatusCode::NOT_FOUND);
  CHECK(take(f.client, 6, &body) == grpc::StatusCode::NOT_FOUND);
  CHECK(take(f.client, 0xFFFFFFFF, &body) == grpc::StatusCode::NOT_FOUND);
  REQUIRE(take(f.client, 5, &body) == grpc::StatusCode::OK);
  CHECK(body.size() == size);
  CHECK(body.substr(sizeof(wire::cuLibraryGetKernel_Reply)) == name);
  CHECK(take(f.client, 5, &body) == grpc::StatusCode::NOT_FOUND);
  f.CheckNeighbour();
}

TEST_CASE("Malformed control calls get a reply or end the session, never the daemon") {
  HostileClientFixture f;
  const auto call = [&](const proto::CallRequest& request, const std::string& payload = "") {
    proto::CallReply reply;
    const grpc::Status status = CallInParts(*ControlOf(f.client), request, payload, &reply);
    return status.ok() ? reply.result() : -1;
  };
  proto::CallRequest request;
  request.set_session(f.client.grant.session());
  wire::cuLibraryLoadData load{};
  bool ends = true;
  SECTION("an operation beyond 16 bits") {
    request.set_op(1 << 20);
    CHECK(call(request) == -1);
    ends = false;
  }
  SECTION("an operation that does not exist") {
    request.set_op(9999);
    CHECK(call(request) == kCudaErrorInvalidValue);
  }
  SECTION("no arguments at all") {
    request.set_op(static_cast<uint32_t>(Op::cuLibraryLoadData));
    CHECK(call(request) == kCudaErrorInvalidValue);
  }
  SECTION("an image longer than the payload") {
    load.image_bytes = UINT64_MAX;
    request.set_op(static_cast<uint32_t>(Op::cuLibraryLoadData));
    request.set_args(&load, sizeof(load));
    CHECK(call(request, "code") == kCudaErrorInvalidValue);
  }
  SECTION("options beyond the payload") {
    load.image_bytes = 4;
    load.jit_option_count = UINT32_MAX;
    request.set_op(static_cast<uint32_t>(Op::cuLibraryLoadData));
    request.set_args(&load, sizeof(load));
    CHECK(call(request, "code") == kCudaErrorInvalidValue);
  }
  SECTION("link inputs whose sizes overflow") {
    wire::cuLinkComplete link{};
    link.input_count = 1;
    const wire::LinkInput input{1, UINT32_MAX, UINT64_MAX};
    request.set_op(static_cast<uint32_t>(Op::cuLinkComplete));
    request.set_args(&link, sizeof(link));
    CHECK(call(request, {reinterpret_cast<const char*>(&input), sizeof(input)}) ==
          kCudaErrorInvalidValue);
  }
  SECTION("a place in the ring that nobody can have reached") {
    request.set_op(static_cast<uint32_t>(Op::cuLibraryUnload));
    request.set_after(UINT64_MAX);
    call(request);
  }
  SECTION("another device") {
    request.set_op(static_cast<uint32_t>(Op::cuLibraryUnload));
    request.set_device(77);
    CHECK(call(request) == kCudaErrorInvalidDevice);
  }
  SECTION("names with NUL, and names without end") {
    const LibraryId library = f.client.Load();
    CHECK(f.client.GetKernel(library, std::string("a\0b", 3)) == 0);
    CHECK(f.client.GetKernel(library, std::string(1 << 20, 'a')) == 0);
    CHECK(f.client.GetKernel(library, "") == 0);
    ends = false;
  }
  if (ends) {
    const auto ended = f.client.AwaitEnd();
    REQUIRE(ended.has_value());
    CHECK(ended->result() != 0);
  } else {
    CHECK(f.client.Synchronize(1) == 0);
  }
  f.CheckNeighbour();
}

TEST_CASE("Bytes that are not gRPC do no harm") {
  HostileClientFixture f;
  std::mt19937 random(7);
  for (int i = 0; i < 30; ++i) {
    const int fd = ConnectTo(f.daemon.socket());
    REQUIRE(fd >= 0);
    std::string bytes = i % 2 == 0 ? "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" : "";
    for (int k = 0; k < 500; ++k) bytes.push_back(static_cast<char>(random()));
    (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    close(fd);
  }
  f.CheckNeighbour();
  TestClient another(f.daemon.socket());
  CHECK(another.Open());
}

TEST_CASE("Another version is refused, and the refusal names both") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  client.request.set_abi_version(kAbiVersion + 1);
  client.request.set_version("9.9.9");
  REQUIRE_FALSE(client.Open());
  CHECK(client.status().error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK_THAT(client.status().error_message(), Catch::Contains("9.9.9"));
  CHECK_THAT(client.status().error_message(),
             Catch::Contains("ABI " + std::to_string(kAbiVersion + 1)));
  CHECK_THAT(client.status().error_message(),
             Catch::Contains("ABI " + std::to_string(kAbiVersion) + ")"));
}

TEST_CASE("Invalid names of tenants are refused") {
  TestDaemon daemon;
  for (const std::string& name :
       {std::string("../../etc"), std::string(65, 'a'), std::string("a b"), std::string("a\n")}) {
    TestClient client(daemon.socket());
    client.tenant = name;
    CHECK_FALSE(client.Open());
    CHECK(client.status().error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  }
}

TEST_CASE("More sessions than there is room for are refused until one ends") {
  constexpr int kSlots = 12;
  TestDaemon daemon([](Daemon::Options& options) {
    options.server.windows.slots = kSlots;
    options.server.region.staging_bytes = 1 << 12;
    options.server.region.fence_count = 512;
    options.server.region.ring_bytes = 2 * kMaxRecordBytes;
  });
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < kSlots; ++i) {
    clients.push_back(std::make_unique<TestClient>(daemon.socket()));
    REQUIRE(clients.back()->Open());
  }
  TestClient last(daemon.socket());
  CHECK_FALSE(last.Open());
  CHECK(last.status().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  clients.pop_back();
  CHECK(Eventually([&] { return TestClient(daemon.socket()).Open(); }));
}

TEST_CASE("A fault hits its own session only, and ends every wait with the error") {
  HostileClientFixture f;
  RingTestClient& ring = *f.client.ring;
  const KernelId kernel = f.client.GetKernel(f.client.Load(), "fault");
  ring.slot(6).state.store(kReplyPending);
  ring.Send(Op::cuLaunchKernelEx, f.client.LaunchOf(kernel, 1));
  ring.Submit(static_cast<uint16_t>(Op::cuStreamSynchronize),
              std::array<uint32_t, 8>{1, 0, 5, 0, 2, 0, 0, 0}.data(),
              sizeof(wire::cuStreamSynchronize), {}, 6);
  CHECK(ring.Await(6) == kCudaErrorIllegalAddress);
  REQUIRE(Eventually([&] { return ring.fence(2).load() >= 5; }));
  CHECK(ring.header().sticky_error.load() == kCudaErrorIllegalAddress);
  CHECK(f.client.Synchronize(1) == kCudaErrorIllegalAddress);
  int result = 0;
  f.client.Allocate(64, &result);
  CHECK(result == kCudaErrorIllegalAddress);
  auto [status, reply] = f.client.Call(Op::cuLibraryUnload, wire::cuLibraryUnload{1, 0});
  CHECK(reply.result() == kCudaErrorIllegalAddress);
  f.CheckNeighbour();
}

TEST_CASE("An error of a record without a reply becomes the session's error") {
  HostileClientFixture f;
  RingTestClient& ring = *f.client.ring;
  ring.Send(Op::cuMemcpyAsync,
            f.client.CopyOf({f.secret, kAddress, 0}, {0, kStaging, 0}, 16, 1, 3, 1));
  REQUIRE(Eventually([&] { return ring.fence(3).load() >= 1; }));
  CHECK(ring.header().sticky_error.load() == kCudaErrorInvalidValue);
  f.CheckNeighbour();
}

TEST_CASE("The loss of a device ends every session with the error") {
  HostileClientFixture f;
  f.client.ring->slot(1).state.store(kReplyPending);
  f.daemon.devices[0]->lost.store(true);
  const auto ended = f.client.AwaitEnd();
  REQUIRE(ended.has_value());
  CHECK(ended->result() == kCudaErrorIllegalAddress);
  CHECK_THAT(ended->reason(), Catch::Contains("lost"));
  CHECK(f.client.ring->header().sticky_error.load() == kCudaErrorIllegalAddress);
  CHECK(f.client.ring->header().closed.load() == 1);
  CHECK(f.client.ring->slot(1).result == kCudaErrorIllegalAddress);
  CHECK(f.client.ring->fence(0).load() == UINT64_MAX);
  REQUIRE(f.neighbour.AwaitEnd().has_value());
  TestClient another(f.daemon.socket());
  CHECK_FALSE(another.Open());
  CHECK(another.status().error_code() == grpc::StatusCode::UNAVAILABLE);
}

TEST_CASE("Shared memory is registered only as whole pages of the user's own files in memory") {
  HostileClientFixture f;
  const auto reg = [&](wire::cuMemHostRegister_v2 args, const std::string& name,
                       uint64_t* address = nullptr) {
    auto [status, reply] = f.client.Call(Op::cuMemHostRegister_v2, args, name);
    REQUIRE(status.ok());
    if (address != nullptr && reply.body().size() == sizeof(*address))
      std::memcpy(address, reply.body().data(), sizeof(*address));
    return static_cast<int>(reply.result());
  };
  char path[] = "/dev/shm/detshare-register-XXXXXX";
  const int fd = mkostemp(path, O_CLOEXEC);
  REQUIRE(fd >= 0);
  const std::string name = std::filesystem::path(path).filename();
  REQUIRE(ftruncate(fd, 3 * kPageBytes) == 0);
  struct stat file;
  REQUIRE(fstat(fd, &file) == 0);
  const wire::cuMemHostRegister_v2 good{0x1000,         0x2000,      kPageBytes,
                                        2 * kPageBytes, file.st_dev, file.st_ino};
  const auto with = [&](auto change) {
    wire::cuMemHostRegister_v2 args = good;
    change(args);
    return args;
  };
  CHECK(reg(with([](auto& a) { a.bytes = 0; }), name) == kCudaErrorInvalidValue);
  CHECK(reg(with([](auto& a) { a.bytes += 1; }), name) == kCudaErrorInvalidValue);
  CHECK(reg(with([](auto& a) { a.file_offset += 1; }), name) == kCudaErrorInvalidValue);
  CHECK(reg(with([](auto& a) { a.file_offset = 0 - uint64_t{kPageBytes}; }), name) ==
        kCudaErrorInvalidValue);
  CHECK(reg(good, std::string(300, 'x')) == kCudaErrorInvalidValue);
  // Past the file's end, another file than the client names, no file, not a plain name.
  CHECK(reg(with([](auto& a) { a.bytes += kPageBytes; }), name) == kCudaErrorNotSupported);
  CHECK(reg(with([](auto& a) { a.inode += 1; }), name) == kCudaErrorNotSupported);
  CHECK(reg(good, "detshare-there-is-none") == kCudaErrorNotSupported);
  CHECK(reg(good, "../shm/" + name) == kCudaErrorNotSupported);
  CHECK(reg(good, name + std::string("\0x", 2)) == kCudaErrorNotSupported);
  CHECK(reg(good, "..") == kCudaErrorNotSupported);
  CHECK(reg(good, "") == kCudaErrorNotSupported);

  uint64_t address = 0;
  REQUIRE(reg(good, name, &address) == 0);
  REQUIRE(unlink(path) == 0);
  const char byte = 42;
  REQUIRE(pwrite(fd, &byte, 1, kPageBytes + 5) == 1);
  CHECK(*reinterpret_cast<char*>(address + 5) == 42);
  CHECK(f.client.ring->Call(Op::cuMemFreeHost, wire::cuMemFreeHost{address}) == 0);
  CHECK(f.client.ring->Call(Op::cuMemFreeHost, wire::cuMemFreeHost{address}) ==
        kCudaErrorInvalidValue);
  close(fd);
}

// A load that names its image in this way.
wire::cuLibraryLoadData NamingImage(uint32_t source, const ContentHash& hash) {
  wire::cuLibraryLoadData args{};
  args.context = 1;
  args.source = source;
  std::copy(hash.begin(), hash.end(), args.hash);
  return args;
}

wire::cuLibraryLoadData_Reply BodyOf(const TestReply& reply) {
  wire::cuLibraryLoadData_Reply body{};
  REQUIRE(reply.body().size() >= sizeof(body));
  std::memcpy(&body, reply.body().data(), sizeof(body));
  return body;
}

TEST_CASE("Another process of the user loads sent code by its exact hash") {
  HostileClientFixture f;
  const std::string image = "code" + std::string(199'996, 'i');
  const auto bytes = std::as_bytes(std::span(image));
  const auto load = [&](uint32_t source, const ContentHash& hash) {
    auto [status, reply] = f.client.Call(Op::cuLibraryLoadData, NamingImage(source, hash));
    REQUIRE(status.ok());
    return BodyOf(reply);
  };
  CHECK(load(wire::kImageAsked, SketchOf({&bytes, 1})).image_unknown == 1);
  CHECK(load(wire::kImageKept, HashOf(bytes)).image_unknown == 1);
  REQUIRE(f.neighbour.Load(image) != 0);
  f.daemon.daemon->manager().image_store().Settle();
  CHECK(load(wire::kImageAsked, SketchOf({&bytes, 1})).image_unknown == 0);
  CHECK(load(wire::kImageAsked, SketchOf({&bytes, 1})).library == 0);
  const wire::cuLibraryLoadData_Reply loaded = load(wire::kImageKept, HashOf(bytes));
  CHECK(loaded.image_unknown == 0);
  CHECK(f.client.GetKernel(loaded.library, "add") != 0);
  ContentHash wrong = HashOf(bytes);
  wrong[0] ^= 1;
  CHECK(load(wire::kImageKept, wrong).image_unknown == 1);
  CHECK(load(wire::kImageKept, SketchOf({&bytes, 1})).library == 0);
  CHECK(load(wire::kImageAsked, HashOf(bytes)).image_unknown == 1);
  for (const auto& session : f.daemon.daemon->manager().Sessions()) {
    CHECK(session.counters.code_bytes == (session.id == f.neighbour.grant.session() ? 200'000 : 0));
  }
  f.CheckNeighbour();
}

TEST_CASE("A load with an unknown kind of image name ends the session") {
  HostileClientFixture f;
  wire::cuLibraryLoadData args = NamingImage(wire::kImageSent, {});
  std::string payload;
  SECTION("an unknown source") { args.source = 3; }
  SECTION("asked for, and sent") {
    args.source = wire::kImageAsked;
    args.image_bytes = 4;
    payload = "code";
  }
  SECTION("kept, and sent") {
    args.source = wire::kImageKept;
    args.image_bytes = 4;
    payload = "code";
  }
  SECTION("kept, with bytes of nothing") {
    args.source = wire::kImageKept;
    payload = "code";
  }
  SECTION("sent, but not here") { args.image_bytes = uint64_t{1} << 63; }
  f.client.Call(Op::cuLibraryLoadData, args, payload);
  const auto ended = f.client.AwaitEnd();
  REQUIRE(ended.has_value());
  CHECK_THAT(ended->reason(), Catch::Contains("cuLibraryLoadData"));
  f.CheckNeighbour();
}

TEST_CASE("Copies and fills are accepted up to the last byte of their range, and no further") {
  HostileClientFixture f;
  RingTestClient& ring = *f.client.ring;
  constexpr uint64_t kMemory = 1 << 20;
  const auto copy = [&](wire::Location destination, wire::Location source, uint64_t bytes,
                        uint64_t payload_bytes = 0) {
    const std::vector<uint8_t> payload(payload_bytes, 5);
    return ring.Call(Op::cuMemcpyAsync, f.client.CopyOf(destination, source, bytes, 1),
                     std::span<const uint8_t>(payload));
  };
  const wire::Location mine{f.memory, kAddress, 0};
  CHECK(copy(mine, {0, kInline, 0}, kInlineCopyBytes, kInlineCopyBytes) == 0);
  CHECK(copy(mine, {0, kInline, 0}, kInlineCopyBytes + 1, kInlineCopyBytes + 1) ==
        kCudaErrorInvalidValue);
  CHECK(copy({0, kInline, 0}, mine, 16, 16) == kCudaErrorInvalidValue);
  CHECK(copy(mine, {84, kInline, 0}, 16, 100) == 0);
  CHECK(copy(mine, {85, kInline, 0}, 16, 100) == kCudaErrorInvalidValue);
  CHECK(copy(mine, {UINT64_MAX, kInline, 0}, 16, 100) == kCudaErrorInvalidValue);
  const uint64_t staging = ring.header().staging_bytes;
  CHECK(copy(mine, {staging - 8, kStaging, 0}, 8) == 0);
  CHECK(copy(mine, {staging - 8, kStaging, 0}, 9) == kCudaErrorInvalidValue);

  CHECK(ring.Call(Op::cuMemHostAlloc, wire::cuMemHostAlloc{4096, 7, 0}) == 0);
  CHECK(ring.Call(Op::cuMemHostAlloc, wire::cuMemHostAlloc{4096, 8, 0}) == kCudaErrorInvalidValue);
  CHECK(ring.Call(Op::cuMemHostAlloc, wire::cuMemHostAlloc{0, 0, 0}) == kCudaErrorInvalidValue);

  const auto fill = [&](uint64_t width, uint64_t height, uint64_t pitch, uint32_t element) {
    return ring.Call(Op::cuMemsetD2D32Async,
                     wire::cuMemsetD2D32Async{f.memory, pitch, width, height, 3, element, 1, 0});
  };
  CHECK(fill(4, 2, 18, 2) == 0);
  CHECK(fill(4, 2, 18, 4) == kCudaErrorInvalidValue);  // rows that are not aligned
  CHECK(fill(4, 1, 18, 4) == 0);                       // one row has no pitch
  CHECK(fill(4, 2, 16, 4) == 0);
  CHECK(fill(4, 2, 12, 4) == kCudaErrorInvalidValue);  // rows that overlap
  CHECK(fill(1, kMemory / 16, 16, 1) == 0);
  CHECK(fill(1, 2, uint64_t{1} << 40, 1) == kCudaErrorInvalidValue);
  f.CheckNeighbour();
}

TEST_CASE("A launch without all bytes of its parameters, or with unknown flags, is refused") {
  HostileClientFixture f;
  RingTestClient& ring = *f.client.ring;
  const KernelId kernel = f.client.GetKernel(f.client.Load(), "add");
  REQUIRE(kernel != 0);
  const auto launch = [&](const wire::cuLaunchKernelEx& args, size_t bytes) {
    const uint64_t parameters[2] = {f.memory, 1};
    return ring.Call(Op::cuLaunchKernelEx, args,
                     {reinterpret_cast<const uint8_t*>(parameters), bytes});
  };
  wire::cuLaunchKernelEx args = f.client.LaunchOf(kernel, 1);
  CHECK(launch(args, 15) == kCudaErrorInvalidValue);
  CHECK(launch(args, 16) == 0);
  args.flags = 1u << 31;
  CHECK(launch(args, 16) == kCudaErrorInvalidValue);
  args.flags = wire::kLaunchHasHints;  // which are not there
  CHECK(launch(args, 16) == kCudaErrorInvalidValue);
  f.CheckNeighbour();
}

TEST_CASE("Code that is unloaded makes room for other code") {
  TestDaemon daemon([](Daemon::Options& options) { options.server.limits.image_bytes = 100; });
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  const std::string image = "code" + std::string(60, 'x');
  for (int i = 0; i < 3; ++i) {
    const LibraryId library = client.Load(image);
    CHECK(library != 0);
    CHECK(client.Load(image) == 0);
    CHECK(client.ring->Call(Op::cuLibraryUnload, wire::cuLibraryUnload{library, 0}) == 0);
  }
  // The code of a context ends with it.
  CHECK(client.Load(image) != 0);
  CHECK(client.ring->Call(Op::cuCtxDestroy_v2, wire::cuCtxDestroy_v2{1, 0}) == 0);
  CHECK(client.Load(image) != 0);
}

TEST_CASE("Only code that is loaded counts, and ids of unloaded code name nothing") {
  TestDaemon daemon([](Daemon::Options& options) {
    options.server.limits.libraries = 2;
    options.server.limits.kernels = 1;
  });
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  client.CreateStream(1);
  std::vector<std::pair<LibraryId, KernelId>> unloaded;
  for (int i = 0; i < 5; ++i) {
    const LibraryId library = client.Load();
    const LibraryId other = client.Load();
    REQUIRE(library != 0);
    REQUIRE(other != 0);
    CHECK(client.Load() == 0);
    const KernelId kernel = client.GetKernel(library, "add");
    REQUIRE(kernel != 0);
    CHECK(client.GetKernel(library, "add") == kernel);
    CHECK(client.GetKernel(other, "add") == 0);
    for (const auto& [gone, its_kernel] : unloaded) {
      CHECK(client.GetKernel(gone, "add") == 0);
      CHECK(client.ring->Call(Op::cuLibraryUnload, wire::cuLibraryUnload{gone, 0}) ==
            kCudaErrorInvalidHandle);
      CHECK(client.ring->Call(Op::cuLaunchKernelEx, client.LaunchOf(its_kernel, 1)) ==
            kCudaErrorInvalidHandle);
    }
    for (const LibraryId loaded : {library, other})
      CHECK(client.ring->Call(Op::cuLibraryUnload, wire::cuLibraryUnload{loaded, 0}) == 0);
    unloaded.emplace_back(library, kernel);
  }
}

}  // namespace
}  // namespace detshare
