// Threads that the shim starts inside of somebody else's program.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace detshare::shim {

// While it lives, threads that this thread starts begin with all signals blocked. Signals belong to
// the program's own threads: one that blocks SIGTERM everywhere and waits for it must not die of it
// in a thread of ours. Not for longer than it takes to start them, since the calling thread is
// deaf, too.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace detshare::shim
