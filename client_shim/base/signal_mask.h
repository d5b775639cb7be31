// Blocks signals while the shim starts a thread inside the program's process.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace detshare::shim {

// Threads that the calling thread starts during the life of this object begin with all signals
// blocked. Signals belong to the program's own threads: a program that blocks SIGTERM everywhere
// and waits for it must not die of SIGTERM in a thread of the shim. Keep the object only while
// threads are started, because the calling thread gets no signals either.
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
