// Whether the CPUs of the host are all busy.
//
// A thread that polls for work instead of sleeping answers sooner, but takes a CPU from threads that
// have work. While more threads want to run than there are CPUs, the kernel's turns (milliseconds)
// make the poller late, too, and a sleeping thread gets a CPU as soon as it is woken.
#pragma once

#include <atomic>
#include <cstdint>

namespace detshare {

// Threading: any thread.
class CpuLoad {
 public:
  // Reads a file in the format of /proc/loadavg. `cpus`: the CPUs of the host.
  CpuLoad(const char* path, int cpus);
  ~CpuLoad();
  CpuLoad(const CpuLoad&) = delete;
  CpuLoad& operator=(const CpuLoad&) = delete;

  // The load of this host. Never destroyed.
  static CpuLoad& OfHost();

  // Whether more threads want to run than there are CPUs, the caller included. `now`: nanoseconds of
  // a clock that never goes back. Looks at most once in kInterval, which takes some 3 us. False if
  // the kernel does not say.
  bool Full(int64_t now);

  static constexpr int64_t kInterval = 1'000'000;
  // It counts as full for this time after it was last seen full.
  static constexpr int64_t kHold = 10'000'000;

 private:
  bool Look() const;

  const int cpus_;
  int fd_;
  // Relaxed: hints, which publish nothing.
  std::atomic<int64_t> look_at_{0}, full_until_{0};
};

}  // namespace detshare
