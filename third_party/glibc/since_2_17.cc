// Functions of glibc that began after 2.17, for libraries and programs that are linked with
// link_stubs.py. Each has glibc's contract, as far as the shipped code depends on it. Hidden, so
// that a process's other code uses the system's.
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define DETSHARE_GLIBC extern "C" __attribute__((visibility("hidden")))

// 2.32. Not 0: the process may have one thread only. libstdc++ then counts references without
// atomic operations. 0 is always right.
DETSHARE_GLIBC char __libc_single_threaded;
char __libc_single_threaded = 0;

// ---- system calls that had no function

DETSHARE_GLIBC ssize_t getrandom(void* buffer, size_t bytes, unsigned int flags) {
  return syscall(SYS_getrandom, buffer, bytes, flags);
}

DETSHARE_GLIBC int getentropy(void* buffer, size_t bytes) {
  if (bytes > 256) {
    errno = EIO;
    return -1;
  }
  char* at = static_cast<char*>(buffer);
  while (bytes > 0) {
    const ssize_t got = getrandom(at, bytes, 0);
    if (got < 0 && errno != EINTR) return -1;
    if (got > 0) {
      at += got;
      bytes -= static_cast<size_t>(got);
    }
  }
  return 0;
}

DETSHARE_GLIBC int memfd_create(const char* name, unsigned int flags) {
  return static_cast<int>(syscall(SYS_memfd_create, name, flags));
}

// Before 2.33 these were macros of sys/stat.h. On x86-64 the kernel fills glibc's struct stat.
DETSHARE_GLIBC int stat(const char* path, struct stat* result) {
  return static_cast<int>(syscall(SYS_stat, path, result));
}
DETSHARE_GLIBC int lstat(const char* path, struct stat* result) {
  return static_cast<int>(syscall(SYS_lstat, path, result));
}
DETSHARE_GLIBC int fstat(int fd, struct stat* result) {
  return static_cast<int>(syscall(SYS_fstat, fd, result));
}
DETSHARE_GLIBC int fstatat(int directory, const char* path, struct stat* result, int flags) {
  return static_cast<int>(syscall(SYS_newfstatat, directory, path, result, flags));
}
DETSHARE_GLIBC int stat64(const char* path, struct stat64* result) {
  return static_cast<int>(syscall(SYS_stat, path, result));
}
DETSHARE_GLIBC int fstat64(int fd, struct stat64* result) {
  return static_cast<int>(syscall(SYS_fstat, fd, result));
}

// ---- 2.30

// Older ones wait by the time of day, which may be set meanwhile. So the wait is cut into pieces,
// and callers look at their own clock when one ends: a wake-up without a reason is allowed.
DETSHARE_GLIBC int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                          clockid_t clock, const struct timespec* end) {
  constexpr int64_t kSecond = 1'000'000'000;
  timespec now{}, day{};
  if (clock_gettime(clock, &now) != 0) return EINVAL;
  int64_t left = (end->tv_sec - now.tv_sec) * kSecond + (end->tv_nsec - now.tv_nsec);
  const bool whole = left <= kSecond;
  if (left < 0) left = 0;
  if (!whole) left = kSecond;
  clock_gettime(CLOCK_REALTIME, &day);
  const int64_t at = day.tv_nsec + left;
  day.tv_sec += at / kSecond;
  day.tv_nsec = at % kSecond;
  const int result = pthread_cond_timedwait(condition, mutex, &day);
  return result == ETIMEDOUT && !whole ? 0 : result;
}
