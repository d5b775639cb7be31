// The slots in which the daemon replies to ring records (proto/ring_abi.h). A thread takes a slot
// for each call that has a reply, names it in the record, waits for it, and releases it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "proto/ring_abi.h"

namespace detshare::shim {

// Any thread.
class ReplySlots {
 public:
  // `slots` has `count` entries. `closed` is the session's word. All outlive this object.
  ReplySlots(ReplySlot* slots, uint32_t count, const std::atomic<uint32_t>& closed);

  // Takes a pending slot for the caller alone. Tries *hint first and leaves the taken slot there.
  // Waits while all slots are taken. Returns kNoReply if the session is closed. Lock-free.
  uint32_t Acquire(uint32_t* hint);

  // Spins for spin_us, then sleeps until the daemon has replied. Returns false if the session ended
  // before that.
  bool Wait(uint32_t slot, uint32_t spin_us);

  // The reply. Only after Wait has returned true.
  const ReplySlot& operator[](uint32_t slot) const { return slots_[slot]; }

  // Gives back a slot whose reply has arrived, or that was never submitted. A slot whose reply may
  // still come stays taken.
  void Release(uint32_t slot);

 private:
  ReplySlot* const slots_;
  const uint32_t count_;
  const std::atomic<uint32_t>& closed_;
  // A set bit: the slot is taken. Acquire and release order each owner's use after the previous
  // one's.
  std::unique_ptr<std::atomic<uint64_t>[]> taken_;
};

}  // namespace detshare::shim
