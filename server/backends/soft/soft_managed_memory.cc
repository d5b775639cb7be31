#include "server/backends/soft/soft_managed_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

namespace detshare::soft {

absl::StatusOr<std::shared_ptr<ManagedMemory>> SoftManagedMemory::Create(
    const ManagedWindow& window, uint64_t capacity) {
  const int file = memfd_create("detshare-managed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return absl::ErrnoToStatus(errno, "memfd_create");
  // An address is the offset in the file, which has no pages where nothing was written.
  if (ftruncate(file, static_cast<off_t>(window.base + window.bytes)) != 0 ||
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int error = errno;
    close(file);
    return absl::ErrnoToStatus(error, "cannot set the size of the file of managed memory");
  }
  return std::shared_ptr<ManagedMemory>(new SoftManagedMemory(file, window, capacity));
}

SoftManagedMemory::~SoftManagedMemory() { close(file_); }

absl::StatusOr<ManagedMemory::Range> SoftManagedMemory::Reserve(uint64_t bytes) {
  const MutexLock lock(&mutex_);
  const std::optional<ManagedAddresses::Taken> taken = addresses_.Take(bytes);
  if (!taken.has_value()) return absl::ResourceExhaustedError("no room for managed memory");
  void* const wanted = reinterpret_cast<void*>(taken->address);
  void* const mapped = mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
                            file_, static_cast<off_t>(taken->address));
  if (mapped == wanted) return Range{taken->address, bytes};
  const int error = mapped == MAP_FAILED ? errno : EEXIST;
  if (mapped != MAP_FAILED) munmap(mapped, bytes);
  addresses_.Free(bytes);
  // The address is not given back: something is there.
  return absl::ResourceExhaustedError(absl::ErrnoToStatus(error, "mmap").message());
}

void SoftManagedMemory::Release(const Range& range) {
  munmap(reinterpret_cast<void*>(range.address), range.bytes);
  // The next user finds zeros, and the host has its memory back, even if a client still maps it.
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(range.address),
            static_cast<off_t>(range.bytes));
  const MutexLock lock(&mutex_);
  addresses_.Free(range.bytes);
  addresses_.GiveBack(range.address, ManagedAddresses::ReservedFor(range.bytes));
}

}  // namespace detshare::soft
