#include "coroutine_runtime/host_store.h"

#include <sys/mman.h>

#include "policy/status_macros.h"

namespace detshare {

HostBlock::~HostBlock() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

HostStore::HostStore(uint64_t limit, Quota::Shared shared)
    : quota_(std::make_shared<Quota>(
          limit,
          [](const Quota&, uint64_t) {
            return absl::ResourceExhaustedError(
                "the host's room for evicted device memory is used up");
          },
          std::move(shared))) {}

absl::StatusOr<HostBlock> HostStore::Take(uint64_t bytes) {
  HostBlock block;
  DETSHARE_ASSIGN_OR_RETURN(block.charge_, Quota::Take(quota_, bytes));
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  // mmap(2) refuses 0 bytes, too.
  if (memory == MAP_FAILED) return absl::ResourceExhaustedError("the host has no memory left");
  // Huge pages cause fewer faults when the block is filled. A core dump of the daemon must not
  // write a tenant's memory to disk.
  madvise(memory, bytes, MADV_HUGEPAGE);
  madvise(memory, bytes, MADV_DONTDUMP);
  block.memory_ = static_cast<std::byte*>(memory);
  block.bytes_ = bytes;
  return block;
}

}  // namespace detshare
