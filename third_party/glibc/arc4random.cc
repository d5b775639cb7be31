// arc4random() for programs that run with older C libraries than this machine's: the only thing of
// glibc 2.36 that libstdc++'s archive asks for (std::random_device). With it, what is shipped runs
// with glibc 2.35, which Ubuntu 22.04 and the many images that are made of it have.
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

extern "C" uint32_t arc4random() noexcept {
  uint32_t value = 0;
  // So few bytes come whole, or not at all when a signal arrives while the kernel has no entropy
  // yet.
  while (getrandom(&value, sizeof(value), 0) != sizeof(value)) {
    if (errno != EINTR) abort();  // as glibc's does: there is no randomness that one could trust
  }
  return value;
}
