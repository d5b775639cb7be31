// Keeps the daemon alive when a client truncates a file that the daemon has mapped.
//
// An access to a page of a mapped file beyond the file's end raises SIGBUS. Inside a guarded range
// the handler puts an anonymous zero page over the hole, raises the range's flag and lets the
// access go on. The owner of the range sees the flag and ends the session. A SIGBUS anywhere else
// ends the process, as without the handler.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace detshare {

// Guards one range of addresses as long as the object lives. There are at most kMaxGuards at a
// time; further objects protect nothing (active() is false). Any thread may use one.
class SigbusGuard {
 public:
  static constexpr size_t kMaxGuards = 4096;

  // [begin, begin + bytes) is page aligned. The first guard installs the process's signal handler.
  SigbusGuard(const void* begin, size_t bytes);
  // By now no thread accesses the range through its mapping.
  ~SigbusGuard();
  SigbusGuard(const SigbusGuard&) = delete;
  SigbusGuard& operator=(const SigbusGuard&) = delete;

  bool active() const { return slot_ != nullptr; }
  // Returns whether a page of the range had to be replaced.
  bool tripped() const;

  struct Slot {
    // 0 while the slot is free, 1 while it is being filled. The address is stored last, with
    // release order, and publishes `end` to the signal handler.
    std::atomic<uintptr_t> begin{0};
    std::atomic<uintptr_t> end{0};
    // The signal handler stores it, in the thread that touched the hole. It tells the owner of the
    // guard.
    std::atomic<bool> tripped{false};
  };

 private:
  Slot* slot_ = nullptr;
};

}  // namespace detshare
