#include "server/session/shared_memory_objects.h"

#include <sys/random.h>

#include <algorithm>

#include "coroutine_runtime/status_cuda.h"

namespace detshare {
namespace {

constexpr size_t kMaxEntries = 1 << 20;

}  // namespace

void SharedMemoryObjects::DropEnded() {
  std::erase_if(entries_, [](const auto& entry) { return entry.second.memory.expired(); });
  drop_at_ = std::max<size_t>(64, 2 * entries_.size());
}

absl::StatusOr<ShareTokenValue> SharedMemoryObjects::Export(uid_t owner,
                                                            const SharedMemory& memory) {
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= drop_at_) DropEnded();
  if (entries_.size() >= kMaxEntries)
    return CudaError(kCudaErrorOutOfMemory, "too much memory is shared");
  ShareTokenValue token;
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size()))
    return CudaError(kCudaErrorUnknown, "getrandom failed");
  entries_[token] = {owner, memory.memory, memory.device, memory.offset, memory.bytes};
  return token;
}

absl::StatusOr<SharedMemory> SharedMemoryObjects::Import(uid_t importer,
                                                         const ShareTokenValue& token) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(token);
  if (found == entries_.end() || found->second.owner != importer)
    return CudaError(kCudaErrorInvalidValue, "no such memory shared by this user");
  SharedMemory memory{found->second.memory.lock(), found->second.device, found->second.offset,
                      found->second.bytes};
  if (memory.memory == nullptr)
    return CudaError(kCudaErrorInvalidValue, "the shared memory is gone");
  return memory;
}

}  // namespace detshare
