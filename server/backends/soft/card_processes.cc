#include "server/backends/soft/card_processes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace detshare::soft {
namespace {

struct flock ByteLock(uint32_t place, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = place;
  lock.l_len = 1;
  return lock;
}

}  // namespace

absl::Status CardProcesses::Join(const std::string& file) {
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
    own_ = &table_->words[place_];
    Clear(*own_);
    uint32_t places = table_->places.load();
    while (places <= place_ && !table_->places.compare_exchange_weak(places, place_ + 1)) {
    }
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(kMaxProcesses, " processes share ", file,
                                                   ", so there is no place for one more"));
}

CardProcesses::~CardProcesses() {
  Clear(*own_);
  if (table_ != nullptr) munmap(table_, sizeof(Table));
  if (fd_ >= 0) close(fd_);  // this unlocks the place
}

void CardProcesses::Clear(Words& words) {
  words.used.store(0);
  words.groups.store(0);
}

bool CardProcesses::TryLock(uint32_t place) const {
  struct flock lock = ByteLock(place, F_WRLCK);
  return fcntl(fd_, F_OFD_SETLK, &lock) == 0;
}

void CardProcesses::Unlock(uint32_t place) const {
  struct flock lock = ByteLock(place, F_UNLCK);
  fcntl(fd_, F_OFD_SETLK, &lock);
}

void CardProcesses::ForEachOther(absl::FunctionRef<void(const Words&)> see) const {
  if (table_ == nullptr) return;
  const uint32_t places = std::min(table_->places.load(), kMaxProcesses);
  for (uint32_t i = 0; i < places; ++i) {
    Words& words = table_->words[i];
    if (i == place_ || (words.used.load() == 0 && words.groups.load() == 0)) continue;
    if (TryLock(i)) {
      // Its process has ended.
      Clear(words);
      Unlock(i);
      continue;
    }
    see(words);
  }
}

}  // namespace detshare::soft
