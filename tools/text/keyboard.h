// The keyboard of a tool that shows something again and again. One thread, one object at a time.
#pragma once

#include <termios.h>

#include <chrono>

namespace detshare::text {

// While it lives, keys reach the process at once and are not shown. SIGINT, SIGTERM and SIGHUP end
// a wait instead of the process, so that the terminal gets its settings back. Without a terminal on
// stdin there are no keys.
class Keyboard {
 public:
  Keyboard();
  ~Keyboard();
  Keyboard(const Keyboard&) = delete;
  Keyboard& operator=(const Keyboard&) = delete;

  // Waits until `end`. Returns true, at once, if the user presses q or ends the program.
  bool LeavesBefore(std::chrono::steady_clock::time_point end) const;

 private:
  termios before_{};
  const bool is_terminal_;
};

}  // namespace detshare::text
