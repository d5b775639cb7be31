#include "server/backends/soft/soft_physical_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/status_cuda.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace detshare::soft {
namespace {

absl::Status NoFile(const char* call) {
  return CudaError(kCudaErrorOutOfMemory,
                   absl::StrCat(call, ": ", std::generic_category().message(errno)));
}

}  // namespace

absl::StatusOr<std::shared_ptr<MemoryFile>> MemoryFile::Create(uint64_t bytes) {
  const int fd = memfd_create("detshare-soft-gpu", MFD_CLOEXEC);
  if (fd < 0) return NoFile("memfd_create");
  std::shared_ptr<MemoryFile> file(new MemoryFile(fd, bytes));
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return NoFile("ftruncate");
  return file;
}

MemoryFile::~MemoryFile() { close(fd_); }

absl::StatusOr<uint64_t> MemoryFile::Grow(uint64_t bytes) {
  const MutexLock lock(&mutex_);
  if (bytes > INT64_MAX - bytes_ || ftruncate(fd_, static_cast<off_t>(bytes_ + bytes)) != 0) {
    return NoFile("ftruncate");
  }
  const uint64_t offset = bytes_;
  bytes_ += bytes;
  return offset;
}

void MemoryFile::Discard(uint64_t offset, uint64_t bytes) {
  // Cannot fail on a file in memory.
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
}

bool MemoryFile::MapAt(uint64_t address, uint64_t bytes, uint64_t offset, bool replace) const {
  void* const wanted = reinterpret_cast<void*>(address);
  void* const mapped =
      mmap(wanted, bytes, PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_NORESERVE | (replace ? MAP_FIXED : MAP_FIXED_NOREPLACE), fd_,
           static_cast<off_t>(offset));
  if (mapped == wanted) {
    // A core dump of the daemon must not write a tenant's memory to disk.
    madvise(mapped, bytes, MADV_DONTDUMP);
    return true;
  }
  // Linux versions without MAP_FIXED_NOREPLACE treat the address as a hint.
  if (mapped != MAP_FAILED) munmap(mapped, bytes);
  return false;
}

absl::StatusOr<std::shared_ptr<SoftPhysicalMemory>> SoftPhysicalMemory::Create(
    std::shared_ptr<MemoryFile> file, uint64_t bytes, MemoryBudget& budget) {
  if (bytes == 0 || bytes % kPhysicalGranule != 0) {
    return CudaError(kCudaErrorInvalidValue, "physical memory consists of whole granules");
  }
  if (!budget.Take(bytes))
    return CudaError(kCudaErrorOutOfMemory, "the software GPU's memory is used up");
  const absl::StatusOr<uint64_t> offset = file->Grow(bytes);
  if (!offset.ok()) {
    budget.Give(bytes);
    return offset.status();
  }
  return std::shared_ptr<SoftPhysicalMemory>(
      new SoftPhysicalMemory(std::move(file), *offset, bytes, &budget));
}

SoftPhysicalMemory::~SoftPhysicalMemory() {
  if (budget_ == nullptr) return;
  file_->Discard(offset_, bytes_);
  budget_->Give(bytes_);
}

}  // namespace detshare::soft
