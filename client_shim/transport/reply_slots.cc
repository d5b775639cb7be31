#include "client_shim/transport/reply_slots.h"

#include <sched.h>

#include "client_shim/base/futex.h"

namespace detshare::shim {
namespace {

// A daemon that dies wakes no thread. So sleepers look at `closed` this often.
constexpr uint32_t kNapMicroseconds = 50'000;

}  // namespace

ReplySlots::ReplySlots(ReplySlot* slots, uint32_t count, const std::atomic<uint32_t>& closed)
    : slots_(slots),
      count_(count),
      closed_(closed),
      taken_(std::make_unique<std::atomic<uint64_t>[]>((count + 63) / 64)) {
  if (count % 64 != 0)
    taken_[count / 64] = ~uint64_t{0} << count % 64;  // bits without a slot are always taken
}

uint32_t ReplySlots::Acquire(uint32_t* hint) {
  const uint32_t words = (count_ + 63) / 64;
  for (uint32_t round = 0;; ++round) {
    if (closed_.load(std::memory_order_acquire) != 0) [[unlikely]]
      return kNoReply;
    const uint32_t preferred = *hint < count_ ? *hint : 0;
    const uint64_t bit = uint64_t{1} << preferred % 64;
    uint32_t slot = kNoReply;
    if ((taken_[preferred / 64].load(std::memory_order_relaxed) & bit) == 0 &&
        (taken_[preferred / 64].fetch_or(bit, std::memory_order_acquire) & bit) == 0) {
      slot = preferred;
    }
    for (uint32_t i = 0; i < words && slot == kNoReply; ++i) {
      const uint32_t word = (preferred / 64 + i) % words;
      uint64_t seen = taken_[word].load(std::memory_order_relaxed);
      while (~seen != 0) {
        const int free = __builtin_ctzll(~seen);
        if (taken_[word].compare_exchange_weak(seen, seen | uint64_t{1} << free,
                                               std::memory_order_acquire)) {
          slot = word * 64 + free;
          break;
        }
      }
    }
    if (slot != kNoReply) {
      *hint = slot;
      slots_[slot].waiting.store(0, std::memory_order_relaxed);
      // Relaxed: the record that names the slot publishes it.
      slots_[slot].state.store(kReplyPending, std::memory_order_relaxed);
      return slot;
    }
    if (round < 16) {
      sched_yield();
    } else {
      const timespec nap{0, 100'000};
      nanosleep(&nap, nullptr);
    }
  }
}

bool ReplySlots::Wait(uint32_t index, uint32_t spin_us) {
  ReplySlot& slot = slots_[index];
  // Acquire: the daemon wrote the reply before this state.
  const auto done = [&] { return slot.state.load(std::memory_order_acquire) == kReplyDone; };
  if (SpinUntil(done, spin_us)) return true;
  // The daemon stores the state and then looks at `waiting`. This thread stores `waiting` and then
  // looks at the state. So at least one of them sees the other's store.
  slot.waiting.exchange(1, std::memory_order_seq_cst);
  while (!done()) {
    if (closed_.load(std::memory_order_acquire) != 0) return done();
    FutexWait(&slot.state, kReplyPending, kNapMicroseconds);
  }
  return true;
}

void ReplySlots::Release(uint32_t slot) {
  slots_[slot].state.store(kReplyIdle, std::memory_order_relaxed);
  taken_[slot / 64].fetch_and(~(uint64_t{1} << slot % 64), std::memory_order_release);
}

}  // namespace detshare::shim
