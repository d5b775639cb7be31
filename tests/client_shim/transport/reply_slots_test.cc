#include "client_shim/transport/reply_slots.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "client_shim/base/futex.h"
#include "tests/client_shim/transport/fake_region.h"

namespace detshare::shim {
namespace {

void Reply(ReplySlot& slot, int result) {
  slot.result = result;
  slot.bytes = sizeof(int);
  memcpy(slot.data, &result, sizeof(int));
  slot.state.store(kReplyDone, std::memory_order_seq_cst);
  if (slot.waiting.load(std::memory_order_seq_cst) != 0) FutexWake(&slot.state, 1);
}

TEST_CASE("A slot that a thread used last is taken again") {
  FakeRegion region(2 * kMaxRecordBytes, 5);
  ReplySlots slots(region.replies(), region.reply_count(), region.header().closed);
  uint32_t hint = 3;
  CHECK(slots.Acquire(&hint) == 3);
  uint32_t other = 3;
  const uint32_t second = slots.Acquire(&other);
  CHECK(second != 3);
  CHECK(second < 5);
  slots.Release(3);
  CHECK(slots.Acquire(&hint) == 3);
}

TEST_CASE("All slots can be taken, and no more than there are") {
  FakeRegion region(2 * kMaxRecordBytes, 67);
  ReplySlots slots(region.replies(), region.reply_count(), region.header().closed);
  std::vector<bool> taken(67);
  for (int i = 0; i < 67; ++i) {
    uint32_t hint = 0;
    const uint32_t slot = slots.Acquire(&hint);
    REQUIRE(slot < 67);
    CHECK_FALSE(taken[slot]);
    taken[slot] = true;
  }
  region.header().closed.store(1);
  uint32_t hint = 0;
  CHECK(slots.Acquire(&hint) == kNoReply);
}

TEST_CASE("The reply wakes a sleeping thread") {
  FakeRegion region(2 * kMaxRecordBytes);
  ReplySlots slots(region.replies(), region.reply_count(), region.header().closed);
  uint32_t hint = 0;
  const uint32_t slot = slots.Acquire(&hint);
  std::thread daemon([&] {
    while (region.replies()[slot].waiting.load() == 0) std::this_thread::yield();
    Reply(region.replies()[slot], 42);
  });
  CHECK(slots.Wait(slot, 0));
  CHECK(slots[slot].result == 42);
  daemon.join();
}

TEST_CASE("A wait ends when the session is closed") {
  FakeRegion region(2 * kMaxRecordBytes);
  ReplySlots slots(region.replies(), region.reply_count(), region.header().closed);
  uint32_t hint = 0;
  const uint32_t slot = slots.Acquire(&hint);
  std::thread daemon([&] { region.header().closed.store(1, std::memory_order_release); });
  CHECK_FALSE(slots.Wait(slot, 10));
  daemon.join();
}

TEST_CASE("More threads than slots each get their own replies") {
  FakeRegion region(2 * kMaxRecordBytes, 3);
  ReplySlots slots(region.replies(), region.reply_count(), region.header().closed);
  // Each slot carries the number that its owner sent. The reply is twice that number.
  std::atomic<int> asked[3] = {};
  std::atomic<bool> stop{false};
  std::thread daemon([&] {
    while (!stop) {
      for (int i = 0; i < 3; ++i) {
        const int number = asked[i].exchange(0);
        if (number != 0) Reply(region.replies()[i], number * 2);
      }
      std::this_thread::yield();
    }
  });
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      uint32_t hint = 0;
      for (int i = 1; i <= 300; ++i) {
        const uint32_t slot = slots.Acquire(&hint);
        asked[slot] = t * 1000 + i;
        if (!slots.Wait(slot, 5) || slots[slot].result != 2 * (t * 1000 + i)) ++wrong;
        slots.Release(slot);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  daemon.join();
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace detshare::shim
