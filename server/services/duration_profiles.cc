#include "server/services/duration_profiles.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/durations_profile.h"
#include "server/base/logging.h"

namespace detshare {

DurationProfiles::FileIdentity DurationProfiles::IdentityOf(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return {};
  return {found.st_ino, found.st_ctim.tv_sec * 1'000'000'000 + found.st_ctim.tv_nsec};
}

DurationProfiles::DurationProfiles(std::string directory, std::vector<Entry> entries,
                                   std::chrono::milliseconds period)
    : directory_(std::move(directory)) {
  mkdir(directory_.c_str(), 0755);
  for (size_t i = 0; i < entries.size(); ++i) {
    Kept kept{entries[i], absl::StrCat(directory_, "/device", i, ".durations")};
    kept.seen = IdentityOf(kept.path);
    const auto read = ReadProfile(kept.path, DurationsDevice(kept.entry.device->properties()));
    if (read.ok()) {
      LogInfo("read the durations of ", kept.entry.table->Restore(*read), " operations of device ",
              i, " from ", kept.path);
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
      Sync();
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
  Sync();
}

void DurationProfiles::Sync() {
  // Without the lock, the process that writes last may drop what another one has learned.
  const int lock = open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock >= 0) flock(lock, LOCK_EX);
  for (Kept& kept : kept_) Sync(kept);
  if (lock >= 0) close(lock);
}

void DurationProfiles::Sync(Kept& kept) {
  DurationTable& table = *kept.entry.table;
  const uint64_t device = DurationsDevice(kept.entry.device->properties());
  const FileIdentity now = IdentityOf(kept.path);
  if (now != kept.seen) {
    kept.seen = now;
    if (const auto read = ReadProfile(kept.path, device); read.ok()) table.Restore(*read);
  }
  // Read before the records, so that a change meanwhile counts as not written.
  const uint64_t changes = table.changes();
  if (changes == kept.written) return;
  const absl::Status status = WriteProfile(kept.path, device, table.Records());
  if (status.ok()) {
    kept.written = changes;
    kept.seen = IdentityOf(kept.path);
  } else if (!std::exchange(kept.warned, true)) {
    LogWarning("cannot keep durations of operations: ", status.message(),
               "; name another folder with --profile-dir");
  }
}

}  // namespace detshare
