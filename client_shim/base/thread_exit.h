// Calls a function when a thread ends.
#pragma once

#include <pthread.h>

namespace detshare::shim {

// Made once for each function, and never destroyed.
class ThreadExit {
 public:
  explicit ThreadExit(void (*release)(void*)) : made_(pthread_key_create(&key_, release) == 0) {}
  ThreadExit(const ThreadExit&) = delete;
  ThreadExit& operator=(const ThreadExit&) = delete;

  // The function is called when the calling thread ends. Its argument means nothing.
  void Arm() {
    // Any value that is not null has the key's destructor called.
    if (made_) pthread_setspecific(key_, this);
  }

 private:
  pthread_key_t key_{};
  const bool made_;
};

}  // namespace detshare::shim
