// Work that a client queues faster than the device does it.
#include "server/session/backlog.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/quota.h"
#include "proto/wire/event.h"
#include "proto/wire/stream.h"
#include "proto/wire/stream_memory_op.h"
#include "server/sessions/session_manager.h"
#include "tests/server/instant_device.h"
#include "tests/server/soft_daemon.h"

namespace detshare {
namespace {

constexpr uint64_t kLimit = 4 << 20;
// The worker looks at the limit between batches of 64 records.
constexpr uint64_t kBatchBytes = 64 * 8192;
constexpr uint32_t kWait32 = 1, kWrite32 = 2;  // CUstreamBatchMemOpType

SoftDaemon LimitedDaemon() {
  return SoftDaemon([](Daemon::Options& options) { options.server.limits.queued_bytes = kLimit; });
}

// A session whose stream 1 waits for fence 1 to be 1, as for a host function.
struct StalledClient {
  explicit StalledClient(const SoftDaemon& daemon) : client(daemon.socket()) {
    REQUIRE(client.Open());
    client.CreateStream(1);
    client.CreateStream(2);
    memory = client.Allocate(1 << 16);
    REQUIRE(memory != 0);
    ring().Send(Op::cuLaunchHostFunc, wire::cuLaunchHostFunc{1, 1, 1, {1, 0, 0}});
  }
  RingTestClient& ring() { return *client.ring; }
  void Copy(StreamId stream, uint8_t value) {
    const std::vector<uint8_t> bytes(kInlineCopyBytes, value);
    ring().Send(
        Op::cuMemcpyAsync,
        client.CopyOf({memory, wire::kAddress, 0}, {0, wire::kInline, 0}, bytes.size(), stream),
        bytes);
  }
  void MemoryOp(StreamId stream, uint32_t operation, uint32_t value) {
    const wire::StreamMemoryOp one{operation, 0, memory + 8192, value, 0};
    ring().Send(Op::cuStreamBatchMemOp_v2, wire::cuStreamBatchMemOp_v2{stream, 1},
                {reinterpret_cast<const uint8_t*>(&one), sizeof(one)});
  }
  // The host function returns.
  void Release() { ring().fence(1).store(1, std::memory_order_release); }
  uint64_t consumed() { return ring().header().head.load(std::memory_order_acquire); }

  TestClient client;
  uint64_t memory = 0;
};

// Submits `work` until the ring has been full behind a stalled stream. Then checks what the daemon
// has read, and lets the stream go on. Returns the result of the last synchronization.
template <typename Work>
int QueueBehindStall(StalledClient& stalled, int count, const Work& work) {
  std::atomic<bool> submitted{false};
  std::thread submitter([&] {
    for (int i = 0; i < count; ++i) work(i);
    submitted = true;
  });
  // The daemon reads no more, and the client waits for room.
  const uint64_t enough = stalled.ring().header().ring_bytes - kMaxRecordBytes;
  CHECK(Eventually([&] {
    return submitted ||
           stalled.ring().header().tail.load(std::memory_order_relaxed) - stalled.consumed() >=
               enough;
  }));
  CHECK_FALSE(submitted);
  CHECK(stalled.consumed() <= kLimit + kBatchBytes);
  // The rest waits for the host function, which needs no room in the ring.
  stalled.Release();
  submitter.join();
  CHECK(submitted);
  return stalled.client.Synchronize(1);
}

TEST_CASE("A client that queues copies behind a host function waits for room, and none is lost") {
  const SoftDaemon daemon = LimitedDaemon();
  StalledClient stalled(daemon);
  constexpr int kCopies = 4000;  // four times the limit
  CHECK(QueueBehindStall(stalled, kCopies,
                         [&](int i) { stalled.Copy(1, static_cast<uint8_t>(i)); }) == 0);
  CHECK(*reinterpret_cast<uint8_t*>(stalled.memory) == static_cast<uint8_t>(kCopies - 1));
  CHECK(stalled.ring().header().sticky_error.load() == 0);
}

TEST_CASE("Records of events and waits for them count as queued work") {
  const SoftDaemon daemon = LimitedDaemon();
  StalledClient stalled(daemon);
  RingTestClient& ring = stalled.ring();
  ring.Send(Op::cuEventCreate, wire::cuEventCreate{1, 1, 2, 0});
  ring.Send(Op::cuEventRecordWithFlags, wire::cuEventRecordWithFlags{1, 1, {0, kNoFence, 0}});
  ring.Send(Op::cuStreamWaitEvent, wire::cuStreamWaitEvent{2, 1});
  // Stream 2 has no operation of its own. Each of these records takes 64 to 128 bytes of the ring
  // and a kibibyte of the daemon.
  CHECK(
      QueueBehindStall(stalled, 40'000, [&](int) {
        ring.Send(Op::cuEventRecordWithFlags, wire::cuEventRecordWithFlags{1, 2, {0, kNoFence, 0}});
      }) == 0);
  CHECK(stalled.client.Synchronize(2) == 0);
}

TEST_CASE("Waits for a stalled stream are bounded, whatever reply slots they name") {
  const SoftDaemon daemon = LimitedDaemon();
  StalledClient stalled(daemon);
  const wire::cuStreamSynchronize wait{1, 0, {0, kNoFence, 0}};
  CHECK(QueueBehindStall(stalled, 40'000, [&](int) {
          stalled.ring().Submit(static_cast<uint16_t>(Op::cuStreamSynchronize), &wait, sizeof(wait),
                                {}, /*reply_slot=*/5);
        }) == 0);
}

TEST_CASE("A later call on another stream ends the wait of a stream below the limit") {
  const SoftDaemon daemon = LimitedDaemon();
  StalledClient stalled(daemon);
  stalled.Release();
  stalled.MemoryOp(1, kWait32, 7);
  for (int i = 0; i < 500; ++i) stalled.Copy(1, 5);  // half of the limit
  stalled.MemoryOp(2, kWrite32, 7);
  CHECK(stalled.client.Synchronize(1) == 0);
  CHECK(*reinterpret_cast<uint8_t*>(stalled.memory) == 5);
}

TEST_CASE("A session that waits for room ends at once, and its neighbour works meanwhile") {
  const SoftDaemon daemon = LimitedDaemon();
  TestClient neighbour(daemon.socket());
  REQUIRE(neighbour.Open());
  neighbour.CreateStream(1);
  {
    StalledClient stalled(daemon);
    // As much as the limit and the ring hold, so that this thread never waits.
    for (int i = 0; i < 900; ++i) stalled.Copy(1, 1);
    CHECK(neighbour.Synchronize(1) == 0);
  }
  CHECK(Eventually([&] { return daemon.daemon->manager().Sessions().size() == 1; }));
  CHECK(neighbour.Synchronize(1) == 0);
}

// A session that holds as much memory as the test says.
struct Holder {
  explicit Holder(std::shared_ptr<Quota> tenant) : devices(1) {
    devices[0].space = std::make_unique<InstantSpace>(device, 1 << 20, 1 << 20);
    backlog.emplace(devices, kLimit, std::move(tenant));
  }
  bool HasRoomWith(uint64_t bytes) {
    static_cast<InstantSpace&>(*devices[0].space).held = bytes;
    return backlog->HasRoom(/*waits=*/0);
  }

  InstantDevice device;
  std::vector<SessionDevice> devices;
  std::optional<Backlog> backlog;
};

TEST_CASE("A tenant's sessions share its room, and each keeps a little of its own") {
  const auto tenant = std::make_shared<Quota>(
      2 * kLimit, [](const Quota&, uint64_t) { return absl::InternalError("refused"); });
  std::vector<std::unique_ptr<Holder>> holders;
  for (int i = 0; i < 3; ++i) holders.push_back(std::make_unique<Holder>(tenant));
  CHECK(holders[0]->HasRoomWith(kLimit - 1));
  CHECK_FALSE(holders[0]->HasRoomWith(kLimit));
  CHECK_FALSE(holders[1]->HasRoomWith(kLimit));
  CHECK(tenant->used() == 2 * kLimit);
  // The tenant's room is used up. The third session may be the one for which the others wait.
  CHECK(holders[2]->HasRoomWith(Backlog::kAlwaysAllowed - 1));
  CHECK_FALSE(holders[2]->HasRoomWith(Backlog::kAlwaysAllowed));
  // A session that ends gives its part back.
  holders.erase(holders.begin());
  CHECK(holders[1]->HasRoomWith(Backlog::kAlwaysAllowed));
  CHECK(holders[1]->backlog->TakePeak() == Backlog::kAlwaysAllowed);
  CHECK(holders[1]->backlog->TakePeak() == 0);
  holders.clear();
  CHECK(tenant->used() == 0);
}

}  // namespace
}  // namespace detshare
