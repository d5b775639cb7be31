// Keeps what the daemon has learned about durations of operations on disk, one file for each
// device. So a new daemon schedules the first runs of programs as well as the old one scheduled the
// last ones.
#pragma once

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/durations.h"
#include "proto/mutex.h"

namespace detshare {

// No error here stops the daemon: a file that cannot be read or written is a warning in the log.
class DurationProfiles {
 public:
  struct Entry {
    const Device* device = nullptr;
    DurationTable* table = nullptr;  // no code has used the table yet
  };
  // Reads the files in `directory`, which it creates if it does not exist. Writes after each
  // `period` in which the daemon has learned something. Devices and tables outlive this object.
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
    uint64_t written = 0;  // DurationTable::changes() of what the file holds
    bool warned = false;   // a warning that the file cannot be written is in the log
  };
  void Write();

  std::vector<Kept> kept_;  // only the thread uses it, once it runs
  Mutex mutex_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread writer_;
};

}  // namespace detshare
