// Keeps what the daemon has learned about durations of operations on disk, one file for each
// device. So a new daemon schedules the first runs of programs as well as the old one scheduled the
// last ones.
//
// Several engines keep the same files. Each adds what it has learned to what is there, and takes over
// what others have learned:
//
//     period over, or the end --> reads the file, if others have written it --> writes both together
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
  // Reads the files in `directory`, which it creates if it does not exist. After each `period` it
  // takes over what other processes have written, and writes if this one has learned something.
  // Devices and tables outlive this object.
  DurationProfiles(std::string directory, std::vector<Entry> entries,
                   std::chrono::milliseconds period = std::chrono::minutes(5));
  // Writes once more.
  ~DurationProfiles();
  DurationProfiles(const DurationProfiles&) = delete;
  DurationProfiles& operator=(const DurationProfiles&) = delete;

 private:
  // Tells versions of a file apart: each is a new file.
  struct FileIdentity {
    uint64_t inode = 0;  // 0: there is no file
    int64_t changed_at = 0;
    friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
  };
  static FileIdentity IdentityOf(const std::string& path);
  struct Kept {
    Entry entry;
    std::string path;
    uint64_t written = 0;  // DurationTable::changes() of what the file holds
    FileIdentity seen;     // the file that this process read or wrote last
    bool warned = false;   // a warning that the file cannot be written is in the log
  };
  void Sync();
  // The directory is locked, as far as that is possible.
  void Sync(Kept& kept);

  const std::string directory_;
  std::vector<Kept> kept_;  // only the thread uses it, once it runs
  Mutex mutex_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread writer_;
};

}  // namespace detshare
