// Keeps what was learned about durations on disk, a file for each device: so that the first runs of
// programs under a new daemon are scheduled as well as the last ones under the old one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/durations.h"

namespace detshare {

// Nothing here stops a daemon: what cannot be read or written is a warning in the log.
class DurationProfiles {
 public:
  struct Entry {
    const Device* device = nullptr;
    DurationTable* table = nullptr;  // of which nobody has asked anything yet
  };
  // Reads what is in `directory`, which is made where it is not there, and writes at each `period`
  // in which something new was learned. Devices and tables outlive it.
  DurationProfiles(std::string directory, std::vector<Entry> entries,
                   std::chrono::milliseconds period = std::chrono::minutes(5));
  // Writes once more.
  ~DurationProfiles();
  DurationProfiles(const DurationProfiles&) = delete;
  DurationProfiles& operator=(const DurationProfiles&) = delete;

 private:
  struct Kept {
    Entry entry;
    std::string path;
    size_t written = 0;    // operations that were known when the file was written
    bool warned = false;   // that it cannot be
  };
  void Write();

  std::vector<Kept> kept_;  // the thread's, once it runs
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread writer_;
};

}  // namespace detshare
