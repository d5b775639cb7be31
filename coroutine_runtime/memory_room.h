// How who needs memory of a full card asks for others to go.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace detshare {

// A place in the line of those who need room. Whoever was granted it maps memory at once and ends
// the ticket, or another one is not served.
class RoomTicket {
 public:
  enum State : uint64_t { kWaiting = 0, kGranted = 1, kRefused = 2 };

  virtual ~RoomTicket() = default;
  // Release: the room is there. An executor can wait for it to reach kGranted.
  const std::atomic<uint64_t>& state() const { return state_; }

 protected:
  std::atomic<uint64_t> state_{kWaiting};
};

// The owner's thread.
class RoomSource {
 public:
  virtual ~RoomSource() = default;
  // May be answered at once. Null: nobody ever makes room.
  virtual std::unique_ptr<RoomTicket> Ask(uint64_t bytes) = 0;
};

}  // namespace detshare
