// arc4random() for shipped programs and libraries. libstdc++'s archive calls it for
// std::random_device, and it is the only function of glibc 2.36 that libstdc++ needs. With this
// copy they run with glibc 2.35, which Ubuntu 22.04 and images based on it have.
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

extern "C" uint32_t arc4random() noexcept {
  uint32_t value = 0;
  // Four bytes are never split. The call fails with EINTR when a signal arrives before the kernel
  // has entropy.
  while (getrandom(&value, sizeof(value), 0) != sizeof(value)) {
    if (errno != EINTR) abort();  // as glibc's does: there is no other trustworthy source
  }
  return value;
}
