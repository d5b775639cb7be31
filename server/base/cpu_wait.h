// How long a thread has waited for a CPU while it wanted to run.
//
// A thread that polls learns from it that it takes a CPU from others.
#pragma once

#include <cstdint>

namespace detshare {

// One thread creates the object and calls it.
class CpuWait {
 public:
  CpuWait();
  ~CpuWait();
  CpuWait(const CpuWait&) = delete;
  CpuWait& operator=(const CpuWait&) = delete;

  // Returns the time in nanoseconds since the thread began; 0 if the kernel does not say
  // (/proc/thread-self/schedstat). Takes some 2 us.
  int64_t Nanoseconds() const;

 private:
  const int fd_;
};

}  // namespace detshare
