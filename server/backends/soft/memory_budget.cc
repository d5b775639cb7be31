#include "server/backends/soft/memory_budget.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace detshare::soft {
namespace {

struct flock ByteLock(int place, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = place;
  lock.l_len = 1;
  return lock;
}

}  // namespace

absl::Status MemoryBudget::Share(const std::string& file) {
  const auto failed = [&](const char* call) {
    return absl::UnavailableError(
        absl::StrCat(call, " ", file, ": ", std::generic_category().message(errno)));
  };
  fd_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd_ < 0) return failed("open");
  if (ftruncate(fd_, sizeof(Table)) != 0) return failed("ftruncate");
  void* const table = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (table == MAP_FAILED) return failed("mmap");
  table_ = static_cast<Table*>(table);
  for (place_ = 0; place_ < kMaxProcesses; ++place_) {
    if (!TryLock(place_)) continue;
    own_ = &table_->used[place_];
    own_->store(0);
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(kMaxProcesses, " processes share ", file,
                                                   ", so there is no place for one more"));
}

MemoryBudget::~MemoryBudget() {
  if (own_ != &alone_) own_->store(0);
  if (table_ != nullptr) munmap(table_, sizeof(Table));
  if (fd_ >= 0) close(fd_);  // this unlocks the place
}

bool MemoryBudget::TryLock(int place) const {
  struct flock lock = ByteLock(place, F_WRLCK);
  return fcntl(fd_, F_OFD_SETLK, &lock) == 0;
}

void MemoryBudget::Unlock(int place) const {
  struct flock lock = ByteLock(place, F_UNLCK);
  fcntl(fd_, F_OFD_SETLK, &lock);
}

uint64_t MemoryBudget::UsedByOthers() const {
  if (table_ == nullptr) return 0;
  uint64_t sum = 0;
  for (int i = 0; i < kMaxProcesses; ++i) {
    if (i == place_ || table_->used[i].load() == 0) continue;
    if (TryLock(i)) {
      // Its process has ended.
      table_->used[i].store(0);
      Unlock(i);
      continue;
    }
    sum += std::min(table_->used[i].load(), total_);
  }
  return sum;
}

uint64_t MemoryBudget::used() const { return std::min(own_->load() + UsedByOthers(), total_); }

bool MemoryBudget::Take(uint64_t bytes) {
  uint64_t own = own_->load();
  do {
    if (bytes > total_ - own) return false;
  } while (!own_->compare_exchange_weak(own, own + bytes));
  if (own_->load() <= total_ - std::min(total_, UsedByOthers())) return true;
  Give(bytes);
  return false;
}

void MemoryBudget::Give(uint64_t bytes) { own_->fetch_sub(bytes); }

}  // namespace detshare::soft
