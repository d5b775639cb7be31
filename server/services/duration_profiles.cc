#include "server/services/duration_profiles.h"

#include <pthread.h>
#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/durations_profile.h"
#include "server/base/logging.h"

namespace detshare {

DurationProfiles::DurationProfiles(std::string directory, std::vector<Entry> entries,
                                   std::chrono::milliseconds period) {
  mkdir(directory.c_str(), 0755);
  for (size_t i = 0; i < entries.size(); ++i) {
    Kept kept{entries[i], absl::StrCat(directory, "/device", i, ".durations")};
    const absl::StatusOr<size_t> read =
        ReadProfile(kept.path, DurationsDevice(kept.entry.device->properties()), *kept.entry.table);
    if (read.ok()) {
      LogInfo("read the durations of ", *read, " operations of device ", i, " from ", kept.path);
    } else if (!absl::IsNotFound(read.status())) {
      LogWarning("cannot use ", kept.path, ", and will replace it: ", read.status().message());
    }
    kept_.push_back(std::move(kept));
  }
  writer_ = std::thread([this, period] {
    pthread_setname_np(pthread_self(), "profiles");
    MutexLock lock(&mutex_);
    while (!stop_.WaitFor(&mutex_, period,
                          [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; })) {
      lock.Unlock();
      Write();
      lock.Lock();
    }
  });
}

DurationProfiles::~DurationProfiles() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  stop_.SignalAll();
  writer_.join();
  Write();
}

void DurationProfiles::Write() {
  for (Kept& kept : kept_) {
    // Read before the records, so that a change meanwhile counts as not written.
    const uint64_t changes = kept.entry.table->changes();
    if (changes == kept.written) continue;
    const absl::Status status = WriteProfile(
        kept.path, DurationsDevice(kept.entry.device->properties()), *kept.entry.table);
    if (status.ok()) {
      kept.written = changes;
    } else if (!std::exchange(kept.warned, true)) {
      LogWarning("cannot keep durations of operations: ", status.message(),
                 "; name another folder with --profile-dir");
    }
  }
}

}  // namespace detshare
