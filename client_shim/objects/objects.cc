#include "client_shim/objects/objects.h"

#include <time.h>

namespace detshare::shim {
namespace {

Objects* g_objects = nullptr;

}  // namespace

Objects& objects() { return *g_objects; }

void CreateObjects() {
  if (g_objects == nullptr) g_objects = new Objects;
}

void TinyLock::lock() {
  while (held_.exchange(true, std::memory_order_acquire)) {
    for (int i = 0; held_.load(std::memory_order_relaxed); ++i) {
      if (i < 64) {
        __builtin_ia32_pause();
      } else {
        const timespec nap{0, 10'000};
        nanosleep(&nap, nullptr);
      }
    }
  }
}

}  // namespace detshare::shim
