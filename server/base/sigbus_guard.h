// Survives a client that truncates a file which the daemon has mapped.
//
// Touching a page of a mapped file beyond the file's end raises SIGBUS. Inside a guarded range the
// handler puts an anonymous zero page over the hole, raises the range's flag and lets the access go
// on; the owner sees the flag and ends the session. A SIGBUS anywhere else ends the process as
// ever.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace detshare {

// One guarded range of addresses, for as long as the object lives. At most kMaxGuards at a time:
// further ones protect nothing (active() is false). Any thread.
class SigbusGuard {
 public:
  static constexpr size_t kMaxGuards = 4096;

  // [begin, begin + bytes) is page aligned. Installs the process's handler with the first guard.
  SigbusGuard(const void* begin, size_t bytes);
  // Nobody touches the range through its mapping any more.
  ~SigbusGuard();
  SigbusGuard(const SigbusGuard&) = delete;
  SigbusGuard& operator=(const SigbusGuard&) = delete;

  bool active() const { return slot_ != nullptr; }
  // Whether a page of the range had to be replaced.
  bool tripped() const;

  struct Slot {
    // 0 when free, 1 while it is filled. Release-stored last: publishes `end`.
    std::atomic<uintptr_t> begin{0};
    std::atomic<uintptr_t> end{0};
    // Stored by the signal handler, in whatever thread touched the hole.
    std::atomic<bool> tripped{false};
  };

 private:
  Slot* slot_ = nullptr;
};

}  // namespace detshare
