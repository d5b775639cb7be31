// Lets a session ask for other sessions' memory to be evicted when a card is full.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace detshare {

// The place of a request in the queue for room. A session whose request is granted maps its memory
// at once and ends the ticket. Until then no other request is served.
class RoomTicket {
 public:
  enum State : uint64_t { kWaiting = 0, kGranted = 1, kRefused = 2 };

  virtual ~RoomTicket() = default;
  // Release: a waiter that sees kGranted finds the room there. An executor can wait for kGranted.
  const std::atomic<uint64_t>& state() const { return state_; }

 protected:
  std::atomic<uint64_t> state_{kWaiting};
};

// Threading: the owner's thread.
class RoomSource {
 public:
  virtual ~RoomSource() = default;
  // The request may be granted or refused at once. Null if no session ever makes room.
  virtual std::unique_ptr<RoomTicket> Ask(uint64_t bytes) = 0;
};

}  // namespace detshare
