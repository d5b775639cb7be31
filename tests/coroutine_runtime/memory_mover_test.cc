// The turns in which memory moves. What moves is tested with its callers.
#include "coroutine_runtime/memory_mover.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "tests/coroutine_runtime/engine_peers.h"
#include "tests/coroutine_runtime/fake_device.h"
#include "tests/units.h"

namespace detshare {
namespace {

TEST_CASE("Memory moves in the turn of its process only") {
  const RealClock clock;
  EnginePage page, other;
  EnginePeers peers;
  peers.own_id = 1;
  AddPeer(peers, 2, other);
  DeviceTurn turn(page.devices[0].turn, peers, 0, clock, [](bool) {});
  FakeDevice device{2 << 20, 64 * kMiB};
  device.runs_at_once = true;
  QueuePool pool{device};
  MemoryMover mover{device, pool, 1, &turn};
  const auto space = *device.CreateAddressSpace(uint64_t{1} << 40, uint64_t{1} << 36);
  std::vector<std::byte> host(16 * kMiB);
  const std::vector<MovePiece> pieces = {{uint64_t{1} << 40, host.data(), host.size()}};
  std::atomic<bool> stop{false};

  SECTION("at once, when no other process wants the device") {
    CHECK(mover.Move(*space, MemoryMover::Direction::kToHost, pieces, stop).ok());
    CHECK(page.devices[0].turn.ticket == 0);
  }
  SECTION("when the turn of the other one ends") {
    other.devices[0].turn.ticket = 1;
    absl::Status moved;
    std::atomic<bool> done{false};
    std::thread thread([&] {
      moved = mover.Move(*space, MemoryMover::Direction::kToHost, pieces, stop);
      done = true;
    });
    // It stands in line, and has copied nothing.
    while (page.devices[0].turn.ticket == 0) std::this_thread::yield();
    CHECK_FALSE(done);
    other.devices[0].turn.ticket = 0;
    thread.join();
    CHECK(moved.ok());
    CHECK(page.devices[0].turn.ticket == 0);
  }
  SECTION("and not at all, when the session ends before") {
    other.devices[0].turn.ticket = 1;
    absl::Status moved;
    std::thread thread(
        [&] { moved = mover.Move(*space, MemoryMover::Direction::kToHost, pieces, stop); });
    while (page.devices[0].turn.ticket == 0) std::this_thread::yield();
    stop = true;
    thread.join();
    CHECK(absl::IsCancelled(moved));
    CHECK(page.devices[0].turn.ticket == 0);
  }
}

// Its ordinary work is stopped by urgent work that does not end, unless it keeps the device.
struct StoppedDevice : FakeDevice {
  using FakeDevice::FakeDevice;
  void KeepOrdinary(bool keep) override {
    keepers += keep ? 1 : -1;
    ++changes;
    if (keep) RunAll();
  }
  int keepers = 0, changes = 0;
};

TEST_CASE("Memory moves beside urgent work that does not end") {
  StoppedDevice device{2 << 20, 64 * kMiB};
  QueuePool pool{device};
  MemoryMover mover{device, pool, 1, nullptr};
  const auto space = *device.CreateAddressSpace(uint64_t{1} << 40, uint64_t{1} << 36);
  std::vector<std::byte> host(kMiB);
  const std::vector<MovePiece> pieces = {{uint64_t{1} << 40, host.data(), host.size()}};
  const std::atomic<bool> stop{false};
  CHECK(mover.Move(*space, MemoryMover::Direction::kToHost, pieces, stop).ok());
  CHECK(device.changes == 2);
  CHECK(device.keepers == 0);
}

}  // namespace
}  // namespace detshare
