// Calls a function when a thread ends.
#pragma once

#include <pthread.h>

namespace detshare::shim {

// Made once for each function, and never destroyed. Arm() is called on each thread that needs it.
class ThreadExit {
 public:
  explicit ThreadExit(void (*release)(void*)) : made_(pthread_key_create(&key_, release) == 0) {}
  ThreadExit(const ThreadExit&) = delete;
  ThreadExit& operator=(const ThreadExit&) = delete;

  // Lets the function run when the calling thread ends. The function must ignore its argument.
  void Arm() {
    // pthreads calls the key's destructor only for a value that is not null.
    if (made_) pthread_setspecific(key_, this);
  }

 private:
  pthread_key_t key_{};
  const bool made_;
};

}  // namespace detshare::shim
