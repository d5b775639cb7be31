// Sessions with two devices, and memory and events that processes share. The tests make requests
// that no honest client makes.
#include "proto/wire/peer.h"

#include <catch2/catch.hpp>

#include "coroutine_runtime/shared_event.h"
#include "coroutine_runtime/status_cuda.h"
#include "proto/control.pb.h"
#include "proto/wire/context.h"
#include "proto/wire/event.h"
#include "proto/wire/ipc.h"
#include "proto/wire/stream.h"
#include "server/session/shared_events.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/instant_device.h"
#include "tests/server/soft_daemon.h"

namespace detshare {
namespace {

constexpr int kPeerAccessAlreadyEnabled = 704, kPeerAccessNotEnabled = 705;
constexpr uint32_t kInterprocess = 2 | 4;  // CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS

// A client that has a stream and 1 MiB on each of two devices.
struct TwoDevices {
  TwoDevices() : daemon({}, 2), client(daemon.socket()) {
    REQUIRE(client.Open());
    for (uint16_t d = 0; d < 2; ++d) {
      On(d);
      client.ring->Send(Op::cuStreamCreateWithPriority,
                        wire::cuStreamCreateWithPriority{d + 1u, d + 1u, 0, 0});
      memory[d] = client.Allocate(1 << 20);
      REQUIRE(memory[d] != 0);
    }
    On(0);
  }
  // Makes later records use device `d` and its context d + 1.
  void On(uint16_t d) {
    client.ring->device = d;
    client.ring->context = d + 1;
  }
  int Copy(uint64_t to, uint64_t from, uint64_t bytes, StreamId stream) {
    return client.ring->Call(
        Op::cuMemcpyAsync,
        client.CopyOf({to, wire::kAddress, 0}, {from, wire::kAddress, 0}, bytes, stream));
  }
  int Enable(ContextId peer, uint32_t peer_device) {
    return client.ring->Call(Op::cuCtxEnablePeerAccess,
                             wire::cuCtxEnablePeerAccess{peer, peer_device});
  }
  int Disable(ContextId peer) {
    return client.ring->Call(Op::cuCtxDisablePeerAccess, wire::cuCtxDisablePeerAccess{peer, 0});
  }

  TestDaemon daemon;
  TestClient client;
  uint64_t memory[2];
};

TEST_CASE("Copies go from the memory of one device to that of another") {
  TwoDevices f;
  std::memset(reinterpret_cast<void*>(f.memory[1]), 7, 1 << 20);
  CHECK(f.Copy(f.memory[0], f.memory[1], 1 << 20, 1) == 0);
  CHECK(*reinterpret_cast<uint8_t*>(f.memory[0] + (1 << 20) - 1) == 7);
  // Past the end of an allocation, and with a stream of the other device.
  CHECK(f.Copy(f.memory[0], f.memory[1], uint64_t{4} << 20, 1) == kCudaErrorInvalidValue);
  CHECK(f.Copy(f.memory[0], f.memory[1] - 1, 1, 1) == kCudaErrorInvalidValue);
  CHECK(f.Copy(f.memory[0], f.memory[1], 16, 2) == kCudaErrorInvalidHandle);
}

TEST_CASE("A fill and a copy of the host's bytes reach the other device's memory") {
  TwoDevices f;
  RingTestClient& ring = *f.client.ring;
  CHECK(ring.Call(Op::cuMemsetD2D32Async,
                  wire::cuMemsetD2D32Async{f.memory[1], 0, 16, 1, 5, 1, 1, 0}) == 0);
  CHECK(*reinterpret_cast<uint8_t*>(f.memory[1] + 15) == 5);
  std::memset(ring.staging(), 9, 64);
  CHECK(ring.Call(Op::cuMemcpyAsync, f.client.CopyOf({f.memory[1], wire::kAddress, 0},
                                                     {0, wire::kStaging, 0}, 64, 1)) == 0);
  CHECK(*reinterpret_cast<uint8_t*>(f.memory[1] + 63) == 9);
}

TEST_CASE("A stream waits for events of another device, and unknown events are refused") {
  TwoDevices f;
  RingTestClient& ring = *f.client.ring;
  f.On(1);
  CHECK(ring.Call(Op::cuEventCreate, wire::cuEventCreate{1, 2, 2, 0}) == 0);
  CHECK(ring.Call(Op::cuEventRecordWithFlags,
                  wire::cuEventRecordWithFlags{1, 2, {0, kNoFence, 0}}) == 0);
  f.On(0);
  CHECK(ring.Call(Op::cuStreamWaitEvent, wire::cuStreamWaitEvent{1, 1}) == 0);
  CHECK(ring.Call(Op::cuStreamWaitEvent, wire::cuStreamWaitEvent{1, 2}) == kCudaErrorInvalidHandle);
  // Only streams of its own device can record it.
  CHECK(ring.Call(Op::cuEventRecordWithFlags,
                  wire::cuEventRecordWithFlags{1, 1, {0, kNoFence, 0}}) == kCudaErrorInvalidHandle);
}

TEST_CASE("The id of an event that the device could not make is free") {
  TwoDevices f;
  const auto create = [&] {
    return f.client.ring->Call(Op::cuEventCreate, wire::cuEventCreate{5, 1, 2, 0});
  };
  f.daemon.devices[0]->makes_markers = false;
  CHECK(create() != 0);
  f.daemon.devices[0]->makes_markers = true;
  CHECK(create() == 0);
}

TEST_CASE("A stream's work is behind a copy that another stream's client takes for complete") {
  const SoftDaemon daemon;
  TestClient client(daemon.socket()), other(daemon.socket());
  for (TestClient* each : {&client, &other}) {
    REQUIRE(each->Open());
    each->CreateStream(1);
    each->CreateStream(2);
  }
  RingTestClient& ring = *client.ring;
  const uint64_t memory = client.Allocate(4096), elsewhere = other.Allocate(4096);
  // The first stream copies when a host function has returned.
  ring.Send(Op::cuLaunchHostFunc, wire::cuLaunchHostFunc{1, 1, 1, {1, 0, 0}});
  wire::cuMemcpy3DAsync_v2 copy{};
  copy.destination.location = {memory, wire::kAddress, 0};
  copy.source.location = {0, wire::kStaging, 0};
  copy.width = 16;
  copy.height = copy.depth = 1;
  copy.stream = 1;
  copy.synchronous = 1;
  copy.signal = {0, kNoFence, 0};
  std::memset(ring.staging(), 9, 16);
  CHECK(ring.Call(Op::cuMemcpy3DAsync_v2, copy) == 0);
  ring.Send(Op::cuMemsetD2D32Async, wire::cuMemsetD2D32Async{memory, 0, 16, 1, 7, 1, 2, 0});
  const wire::cuStreamSynchronize synchronize{2, 0, {0, kNoFence, 0}};
  ring.slot(1).state.store(kReplyPending);
  ring.Submit(static_cast<uint16_t>(Op::cuStreamSynchronize), &synchronize, sizeof(synchronize), {},
              1);
  // Work of another session shows that the device had time for the second stream.
  for (int i = 0; i < 50; ++i) {
    other.ring->Send(Op::cuMemsetD2D32Async,
                     wire::cuMemsetD2D32Async{elsewhere, 0, 16, 1, 5, 1, 1, 0});
    REQUIRE(other.Synchronize(1) == 0);
  }
  CHECK(ring.slot(1).state.load() == kReplyPending);
  ring.fence(1).store(1);
  CHECK(ring.Await(1) == 0);
  CHECK(*reinterpret_cast<uint8_t*>(memory) == 7);
}

TEST_CASE("A device is named by a beginning of its UUID that no other has") {
  TestDaemon one({}, 1), two({}, 2);
  const auto opens = [](TestDaemon& daemon, const std::string& id) {
    TestClient client(daemon.socket());
    client.request.add_device_ids(id);
    return client.Open();
  };
  CHECK(opens(one, "GPU-ab"));
  CHECK(opens(one, "GPU-AB0000"));
  CHECK_FALSE(opens(one, "GPU-"));
  CHECK_FALSE(opens(one, "GPU-ac"));
  CHECK_FALSE(opens(two, "GPU-ab"));
  CHECK(opens(two, "GPU-ab000000-0000-0000-0000-000000000001"));
}

TEST_CASE("Access to a peer, another device of the session, is enabled once and disabled once") {
  TwoDevices f;
  CHECK(f.Enable(2, 2) == kCudaErrorInvalidDevice);
  CHECK(f.Enable(2, UINT32_MAX) == kCudaErrorInvalidDevice);
  CHECK(f.Enable(1, 0) == kCudaErrorInvalidDevice);
  CHECK(f.Enable(0, 1) == kCudaErrorInvalidContext);
  CHECK(f.Enable(1, 1) == kCudaErrorInvalidContext);  // a context of the other device
  CHECK(f.Disable(2) == kPeerAccessNotEnabled);
  CHECK(f.Enable(2, 1) == 0);
  CHECK(f.Enable(2, 1) == kPeerAccessAlreadyEnabled);
  // Memory that is made and freed in the meantime.
  f.On(1);
  const uint64_t more = f.client.Allocate(8 << 20);
  CHECK(f.client.ring->Call(Op::cuMemFree_v2, wire::cuMemFree_v2{more}) == 0);
  f.On(0);
  CHECK(f.Disable(2) == 0);
  CHECK(f.Disable(2) == kPeerAccessNotEnabled);
  // The access of a context ends with the context.
  CHECK(f.Enable(2, 1) == 0);
  f.On(1);
  CHECK(f.client.ring->Call(Op::cuCtxDestroy_v2, wire::cuCtxDestroy_v2{2, 0}) == 0);
  f.On(0);
  CHECK(f.Disable(2) == kPeerAccessNotEnabled);
}

TEST_CASE("An event between processes is opened only by its token, and only in another process") {
  TestDaemon daemon;
  TestClient one(daemon.socket()), other(daemon.socket());
  for (TestClient* client : {&one, &other}) {
    REQUIRE(client->Open());
    client->CreateStream(1);
  }
  const auto create = [&](TestClient& client, EventId event, uint32_t flags) {
    return client.ring->Call(Op::cuEventCreate, wire::cuEventCreate{event, 1, flags, 0});
  };
  wire::cuIpcGetEventHandle_Reply handle{}, again{};
  REQUIRE(create(one, 1, kInterprocess) == 0);
  REQUIRE(create(one, 2, 2) == 0);
  CHECK(one.ring->Call(Op::cuIpcGetEventHandle, wire::cuIpcGetEventHandle{2, 0}, &handle) ==
        kCudaErrorInvalidHandle);
  CHECK(one.ring->Call(Op::cuIpcGetEventHandle, wire::cuIpcGetEventHandle{7, 0}, &handle) ==
        kCudaErrorInvalidHandle);
  REQUIRE(one.ring->Call(Op::cuIpcGetEventHandle, wire::cuIpcGetEventHandle{1, 0}, &handle) == 0);
  REQUIRE(one.ring->Call(Op::cuIpcGetEventHandle, wire::cuIpcGetEventHandle{1, 0}, &again) == 0);
  CHECK(std::memcmp(&handle, &again, sizeof(handle)) == 0);

  const auto open = [&](TestClient& client, const wire::IpcToken& token, EventId event,
                        ContextId context = 1) {
    return client.ring->Call(Op::cuIpcOpenEventHandle,
                             wire::cuIpcOpenEventHandle{token, event, context});
  };
  wire::IpcToken guess = handle.token;
  guess.bytes[15] ^= 1;
  CHECK(open(other, guess, 5) == kCudaErrorInvalidValue);
  CHECK(open(other, handle.token, 5, 0) == kCudaErrorInvalidContext);
  CHECK(open(one, handle.token, 5) == kCudaErrorInvalidContext);
  CHECK(open(other, handle.token, 5) == 0);
  CHECK(open(other, handle.token, 5) == kCudaErrorInvalidValue);  // the id is taken

  const auto query = [&](TestClient& client, EventId event) {
    return client.ring->Call(Op::cuEventQuery, wire::cuEventQuery{event, 0});
  };
  CHECK(query(other, 5) == 0);
  CHECK(query(one, 2) == 0);  // an event of one process, with the same call
  CHECK(query(one, 3) == kCudaErrorInvalidHandle);
  CHECK(one.ring->Call(Op::cuEventSynchronize, wire::cuEventSynchronize{2, 0}) ==
        kCudaErrorInvalidHandle);
  REQUIRE(one.ring->Call(Op::cuEventRecordWithFlags,
                         wire::cuEventRecordWithFlags{1, 1, {0, kNoFence, 0}}) == 0);
  CHECK(other.ring->Call(Op::cuStreamWaitEvent, wire::cuStreamWaitEvent{1, 5}) == 0);
  CHECK(other.ring->Call(Op::cuEventSynchronize, wire::cuEventSynchronize{5, 0}) == 0);
  CHECK(query(other, 5) == 0);
  CHECK(other.ring->Call(Op::cuEventRecordWithFlags,
                         wire::cuEventRecordWithFlags{5, 9, {0, kNoFence, 0}}) ==
        kCudaErrorInvalidHandle);

  // The event lives exactly as long as a session has it.
  one.Close();
  CHECK(query(other, 5) == 0);
  CHECK(other.ring->Call(Op::cuEventDestroy_v2, wire::cuEventDestroy_v2{5, 0}) == 0);
  CHECK(Eventually([&] { return open(other, handle.token, 6) == kCudaErrorInvalidValue; }));
}

TEST_CASE("Memory between processes is opened only by its token, and only in another process") {
  TestDaemon daemon;
  TestClient one(daemon.socket()), other(daemon.socket());
  for (TestClient* client : {&one, &other}) {
    REQUIRE(client->Open());
    client->CreateStream(1);
  }
  const uint64_t memory = one.Allocate(4 << 20);
  std::memset(reinterpret_cast<void*>(memory), 3, 4 << 20);
  wire::cuIpcGetMemHandle_Reply handle{};
  CHECK(one.ring->Call(Op::cuIpcGetMemHandle, wire::cuIpcGetMemHandle{memory - 1}, &handle) ==
        kCudaErrorInvalidValue);
  CHECK(other.ring->Call(Op::cuIpcGetMemHandle, wire::cuIpcGetMemHandle{memory}, &handle) ==
        kCudaErrorInvalidValue);
  REQUIRE(one.ring->Call(Op::cuIpcGetMemHandle, wire::cuIpcGetMemHandle{memory}, &handle) == 0);

  wire::cuIpcOpenMemHandle_v2_Reply opened{}, again{};
  const auto open = [&](TestClient& client, const wire::IpcToken& token,
                        wire::cuIpcOpenMemHandle_v2_Reply* reply, ContextId context = 1) {
    return client.ring->Call(Op::cuIpcOpenMemHandle_v2,
                             wire::cuIpcOpenMemHandle_v2{token, context, 0}, reply);
  };
  wire::IpcToken guess = handle.token;
  guess.bytes[0] ^= 0x80;
  CHECK(open(other, guess, &opened) == kCudaErrorInvalidValue);
  CHECK(open(other, handle.token, &opened, 0) == kCudaErrorInvalidContext);
  CHECK(open(one, handle.token, &opened) == kCudaErrorInvalidContext);
  REQUIRE(open(other, handle.token, &opened) == 0);
  REQUIRE(open(other, handle.token, &again) == 0);
  CHECK(opened.address == again.address);
  CHECK(opened.bytes == 4 << 20);
  CHECK(*reinterpret_cast<uint8_t*>(opened.address + opened.bytes - 1) == 3);

  const auto close = [&](uint64_t address) {
    return other.ring->Call(Op::cuIpcCloseMemHandle, wire::cuIpcCloseMemHandle{address});
  };
  CHECK(close(opened.address + 1) == kCudaErrorInvalidValue);
  CHECK(other.ring->Call(Op::cuMemFree_v2, wire::cuMemFree_v2{opened.address}) ==
        kCudaErrorInvalidValue);
  CHECK(close(opened.address) == 0);
  CHECK(*reinterpret_cast<uint8_t*>(opened.address) == 3);
  CHECK(close(opened.address) == 0);
  CHECK(close(opened.address) == kCudaErrorInvalidValue);
  // The owner frees the memory, so the token is no longer valid.
  CHECK(one.ring->Call(Op::cuMemFree_v2, wire::cuMemFree_v2{memory}) == 0);
  CHECK(open(other, handle.token, &opened) == kCudaErrorInvalidValue);
}

TEST_CASE("The token of an event is for its user, and for other sessions than its own") {
  InstantDevice device;
  std::vector<std::pair<uint64_t, uint64_t>> shared;
  SharedEvents events(
      [&](uint64_t exporter, uint64_t importer) { shared.emplace_back(exporter, importer); });
  std::shared_ptr<SharedEvent> event = *SharedEvent::Create(device);
  const SharedEvents::Token token = *events.Export(1000, 1, event);
  CHECK(*events.Export(1000, 1, event) == token);
  CHECK(*events.Import(1000, 2, token) == event);
  CHECK(CudaResultOf(events.Import(1000, 1, token).status()) == kCudaErrorInvalidContext);
  CHECK(CudaResultOf(events.Import(1001, 2, token).status()) == kCudaErrorInvalidValue);
  CHECK(CudaResultOf(events.Import(0, 2, token).status()) == kCudaErrorInvalidValue);
  CHECK(shared == std::vector<std::pair<uint64_t, uint64_t>>{{1, 2}});
  const std::shared_ptr<SharedEvent> other = *SharedEvent::Create(device);
  CHECK(*events.Export(1000, 1, other) != token);
  event.reset();
  CHECK(CudaResultOf(events.Import(1000, 2, token).status()) == kCudaErrorInvalidValue);
}

TEST_CASE("An event between processes is opened on any device, and ends with its context") {
  TwoDevices f;
  TestClient owner(f.daemon.socket());
  REQUIRE(owner.Open());
  REQUIRE(owner.ring->Call(Op::cuEventCreate, wire::cuEventCreate{1, 1, kInterprocess, 0}) == 0);
  wire::cuIpcGetEventHandle_Reply handle{};
  REQUIRE(owner.ring->Call(Op::cuIpcGetEventHandle, wire::cuIpcGetEventHandle{1, 0}, &handle) == 0);
  RingTestClient& ring = *f.client.ring;
  const auto open = [&](EventId event, ContextId context) {
    return ring.Call(Op::cuIpcOpenEventHandle,
                     wire::cuIpcOpenEventHandle{handle.token, event, context});
  };
  const auto query = [&] { return ring.Call(Op::cuEventQuery, wire::cuEventQuery{5, 0}); };
  f.On(0);
  CHECK(open(5, 1) == 0);
  CHECK(query() == 0);
  const auto record = [&](EventId event, uint16_t device, StreamId stream) {
    f.On(device);
    return ring.Call(Op::cuEventRecordWithFlags,
                     wire::cuEventRecordWithFlags{event, stream, {0, kNoFence, 0}});
  };
  CHECK(record(5, 1, 2) == kCudaErrorInvalidHandle);
  CHECK(record(5, 0, 1) == 0);
  // Its recordings on the other device are those of the same event.
  f.On(1);
  CHECK(open(7, 2) == 0);
  CHECK(record(7, 0, 1) == kCudaErrorInvalidHandle);
  CHECK(record(7, 1, 2) == 0);
  f.On(0);
  CHECK(ring.Call(Op::cuStreamWaitEvent, wire::cuStreamWaitEvent{1, 5}) == 0);
  CHECK(query() == 0);
  CHECK(owner.ring->Call(Op::cuEventSynchronize, wire::cuEventSynchronize{1, 0}) == 0);
  CHECK(ring.Call(Op::cuCtxDestroy_v2, wire::cuCtxDestroy_v2{1, 0}) == 0);
  CHECK(query() == kCudaErrorInvalidHandle);
  CHECK(owner.ring->Call(Op::cuCtxDestroy_v2, wire::cuCtxDestroy_v2{1, 0}) == 0);
  CHECK(ring.Call(Op::cuEventDestroy_v2, wire::cuEventDestroy_v2{7, 0}) == 0);
  CHECK(open(6, 1) == kCudaErrorInvalidValue);
}

TEST_CASE("Memory between processes that is opened while it is closed is mapped anew") {
  const SoftDaemon daemon;
  TestClient owner(daemon.socket()), client(daemon.socket());
  REQUIRE(owner.Open());
  REQUIRE(client.Open());
  client.CreateStream(1);
  wire::cuIpcGetMemHandle_Reply handle{};
  REQUIRE(owner.ring->Call(Op::cuIpcGetMemHandle, wire::cuIpcGetMemHandle{owner.Allocate(4 << 20)},
                           &handle) == 0);
  RingTestClient& ring = *client.ring;
  wire::cuIpcOpenMemHandle_v2_Reply first{}, second{};
  const auto open = [&](wire::cuIpcOpenMemHandle_v2_Reply* opened) {
    return ring.Call(Op::cuIpcOpenMemHandle_v2, wire::cuIpcOpenMemHandle_v2{handle.token, 1, 0},
                     opened);
  };
  REQUIRE(open(&first) == 0);
  // The memory is closed when a host function has returned.
  ring.Send(Op::cuLaunchHostFunc, wire::cuLaunchHostFunc{1, 1, 1, {1, 0, 0}});
  const wire::cuIpcCloseMemHandle close{first.address};
  ring.slot(1).state.store(kReplyPending);
  ring.Submit(static_cast<uint16_t>(Op::cuIpcCloseMemHandle), &close, sizeof(close), {}, 1);
  CHECK(open(&second) == 0);
  CHECK(ring.slot(1).state.load() == kReplyPending);
  CHECK(second.address != first.address);
  ring.fence(1).store(1);
  CHECK(ring.Await(1) == 0);
  const auto fill = [&](uint64_t address) {
    return ring.Call(Op::cuMemsetD2D32Async,
                     wire::cuMemsetD2D32Async{address, 0, 16, 1, 7, 1, 1, 0});
  };
  CHECK(fill(second.address) == 0);
  CHECK(fill(first.address) == kCudaErrorInvalidValue);
  CHECK(client.Synchronize(1) == 0);
}

TEST_CASE("Memory between processes is out of the reach of every device once it is closed") {
  TwoDevices f;
  TestClient owner(f.daemon.socket());
  REQUIRE(owner.Open());
  const uint64_t memory = owner.Allocate(4 << 20);
  wire::cuIpcGetMemHandle_Reply handle{};
  REQUIRE(owner.ring->Call(Op::cuIpcGetMemHandle, wire::cuIpcGetMemHandle{memory}, &handle) == 0);
  RingTestClient& ring = *f.client.ring;
  wire::cuIpcOpenMemHandle_v2_Reply opened{};
  for (uint16_t d = 0; d < 2; ++d) {
    f.On(d);
    REQUIRE(ring.Call(Op::cuIpcOpenMemHandle_v2,
                      wire::cuIpcOpenMemHandle_v2{handle.token, d + 1u, 0}, &opened) == 0);
  }
  const auto fill = [&](uint16_t d) {
    f.On(d);
    return ring.Call(Op::cuMemsetD2D32Async,
                     wire::cuMemsetD2D32Async{opened.address, 0, 16, 1, 7, 1, d + 1u, 0});
  };
  for (uint16_t d = 0; d < 2; ++d) CHECK(fill(d) == 0);
  for (int i = 0; i < 2; ++i) {
    CHECK(ring.Call(Op::cuIpcCloseMemHandle, wire::cuIpcCloseMemHandle{opened.address}) == 0);
  }
  for (uint16_t d = 0; d < 2; ++d) CHECK(fill(d) == kCudaErrorInvalidValue);
}

TEST_CASE("The token of freed memory does not open the memory that takes its place") {
  TestDaemon daemon;
  TestClient owner(daemon.socket()), other(daemon.socket());
  for (TestClient* client : {&owner, &other}) {
    REQUIRE(client->Open());
    client->CreateStream(1);
  }
  const auto show = [&](uint64_t memory) {
    wire::cuIpcGetMemHandle_Reply handle{};
    CHECK(owner.ring->Call(Op::cuIpcGetMemHandle, wire::cuIpcGetMemHandle{memory}, &handle) == 0);
    return handle.token;
  };
  const auto open = [&](const wire::IpcToken& token) {
    return other.ring->Call(Op::cuIpcOpenMemHandle_v2, wire::cuIpcOpenMemHandle_v2{token, 1, 0});
  };
  for (const bool on_stream : {false, true}) {
    INFO(on_stream);
    const uint64_t memory = owner.Allocate(4 << 20);
    const wire::IpcToken token = show(memory);
    CHECK((on_stream ? owner.ring->Call(Op::cuMemFreeAsync, wire::cuMemFreeAsync{memory, 1, 0})
                     : owner.ring->Call(Op::cuMemFree_v2, wire::cuMemFree_v2{memory})) == 0);
    REQUIRE(owner.Allocate(4 << 20) == memory);
    CHECK(open(token) == kCudaErrorInvalidValue);
    CHECK(std::memcmp(&token, show(memory).bytes, sizeof(token)) != 0);
    CHECK(open(token) == kCudaErrorInvalidValue);
    CHECK(owner.ring->Call(Op::cuMemFree_v2, wire::cuMemFree_v2{memory}) == 0);
  }
}

}  // namespace
}  // namespace detshare
