#include "server/session/shared_memory_objects.h"

#include <sys/random.h>

#include <algorithm>

#include "coroutine_runtime/status_cuda.h"

namespace detshare {
namespace {

bool SameOwner(const std::weak_ptr<PhysicalMemory>& a, const std::shared_ptr<PhysicalMemory>& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

}  // namespace

void SharedMemoryObjects::DropEnded() {
  std::erase_if(entries_, [](const auto& entry) { return entry.second.memory.expired(); });
  // Drop tokens of ended memory, because new memory may have the same address.
  std::erase_if(tokens_, [this](const auto& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !entries_.contains(item.second);
  });
  drop_at_ = std::min(max_tokens_, std::max<size_t>(64, 2 * entries_.size()));
}

absl::StatusOr<ShareTokenValue> SharedMemoryObjects::Export(uid_t owner,
                                                            const SharedMemory& memory) {
  const MutexLock lock(&mutex_);
  const Part part(memory.memory.get(), memory.offset, memory.bytes);
  if (const auto known = tokens_.find(part); known != tokens_.end()) {
    const auto entry = entries_.find(known->second);
    if (entry != entries_.end() && entry->second.owner == owner &&
        SameOwner(entry->second.memory, memory.memory)) {
      return known->second;
    }
  }
  if (entries_.size() >= std::min(drop_at_, max_tokens_)) DropEnded();
  if (entries_.size() >= max_tokens_)
    return CudaError(kCudaErrorOutOfMemory, "too much memory is shared");
  ShareTokenValue token;
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size()))
    return CudaError(kCudaErrorUnknown, "getrandom failed");
  entries_[token] = {owner, memory.memory, memory.device, memory.offset, memory.bytes};
  tokens_[part] = token;
  return token;
}

absl::StatusOr<SharedMemory> SharedMemoryObjects::Import(uid_t importer,
                                                         const ShareTokenValue& token) {
  const MutexLock lock(&mutex_);
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
