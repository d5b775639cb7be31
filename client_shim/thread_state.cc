#include "client_shim/thread_state.h"

#include <pthread.h>

#include <cstdlib>

#include "client_shim/entry.h"
#include "client_shim/session.h"
#include "client_shim/streams.h"

namespace detshare::shim {
namespace {

void Release(void*) {
  ThreadState& thread = thread_state;
  free(thread.below);
  thread.below = nullptr;
  thread.capacity = thread.depth = 0;
  thread.current = nullptr;
  PerThreadStreams* streams = thread.streams;
  thread.streams = nullptr;
  const FenceIndex fence_plus_one = thread.fence_plus_one;
  thread.fence_plus_one = 0;
  // After a fork or the library's end there is nobody to give things back to.
  if (g_gate.load(std::memory_order_acquire) != CUDA_SUCCESS) return;
  if (streams != nullptr) DestroyPerThreadStreams(streams);
  if (fence_plus_one != 0) session().fences().Give(fence_plus_one - 1, thread.fence_value);
}

pthread_key_t MakeKey() {
  pthread_key_t key;
  return pthread_key_create(&key, Release) == 0 ? key : static_cast<pthread_key_t>(-1);
}

}  // namespace

thread_local ThreadState thread_state __attribute__((tls_model("initial-exec"))) = {};

void ReleaseAtThreadExit() {
  static const pthread_key_t key = MakeKey();
  // Any value that is not null has the destructor called.
  if (key != static_cast<pthread_key_t>(-1)) pthread_setspecific(key, &thread_state);
}

}  // namespace detshare::shim
