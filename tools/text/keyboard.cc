#include "tools/text/keyboard.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

namespace detshare::text {
namespace {

// Set by a signal.
volatile sig_atomic_t g_ended = 0;

}  // namespace

Keyboard::Keyboard() : is_terminal_(tcgetattr(STDIN_FILENO, &before_) == 0) {
  g_ended = 0;
  struct sigaction end {};
  end.sa_handler = [](int) { g_ended = 1; };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &end, nullptr);
  if (!is_terminal_) return;
  termios at_once = before_;
  at_once.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  tcsetattr(STDIN_FILENO, TCSANOW, &at_once);
}

Keyboard::~Keyboard() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
  if (is_terminal_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

bool Keyboard::LeavesBefore(std::chrono::steady_clock::time_point end) const {
  while (g_ended == 0) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (poll(&input, is_terminal_ ? 1 : 0, static_cast<int>(left.count())) <= 0) continue;
    char key = 0;
    if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q') return true;
  }
  return true;
}

}  // namespace detshare::text
