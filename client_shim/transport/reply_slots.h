// The slots in which the daemon answers ring records (proto/ring_abi.h). A thread takes one for
// each call that has a reply.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "proto/ring_abi.h"

namespace detshare::shim {

class ReplySlots {
 public:
  // `slots` has `count` entries; `closed` is the session's. All outlive the object.
  ReplySlots(ReplySlot* slots, uint32_t count, const std::atomic<uint32_t>& closed);

  // A slot of the caller's own, pending. Looks at *hint first and leaves the slot there. Waits
  // while all are taken. kNoReply when the session is closed. Lock-free.
  uint32_t Acquire(uint32_t* hint);

  // Spins for spin_us, then sleeps until the daemon has answered. False when the session ended
  // instead.
  bool Wait(uint32_t slot, uint32_t spin_us);

  // Only after a Wait that returned true.
  const ReplySlot& operator[](uint32_t slot) const { return slots_[slot]; }

  // Gives a slot back that has been answered, or was never submitted. (A slot whose answer may
  // still come stays taken.)
  void Release(uint32_t slot);

 private:
  ReplySlot* const slots_;
  const uint32_t count_;
  const std::atomic<uint32_t>& closed_;
  // Bit set: taken. Acquire and release order one owner's use after the one before.
  std::unique_ptr<std::atomic<uint64_t>[]> taken_;
};

}  // namespace detshare::shim
