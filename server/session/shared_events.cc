#include "server/session/shared_events.h"

#include <sys/random.h>

#include <algorithm>

#include "coroutine_runtime/status_cuda.h"

namespace detshare {

void SharedEvents::DropEnded() {
  std::erase_if(entries_, [](const auto& entry) { return entry.second.event.expired(); });
  // Drop tokens of ended events, because a new event may have the same address.
  std::erase_if(tokens_, [this](const auto& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !entries_.contains(item.second);
  });
  drop_at_ = std::max<size_t>(64, 2 * entries_.size());
}

absl::StatusOr<SharedEvents::Token> SharedEvents::Export(
    uid_t owner, uint64_t session, const std::shared_ptr<SharedEvent>& event) {
  const MutexLock lock(&mutex_);
  if (const auto known = tokens_.find(event.get()); known != tokens_.end()) {
    const auto entry = entries_.find(known->second);
    if (entry != entries_.end() && entry->second.event.lock() == event) return known->second;
  }
  if (entries_.size() >= drop_at_) DropEnded();
  Token token;
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size()))
    return CudaError(kCudaErrorUnknown, "getrandom failed");
  entries_[token] = {owner, session, event};
  tokens_[event.get()] = token;
  return token;
}

absl::StatusOr<std::shared_ptr<SharedEvent>> SharedEvents::Import(uid_t importer, uint64_t session,
                                                                  const Token& token) {
  MutexLock lock(&mutex_);
  const auto found = entries_.find(token);
  if (found == entries_.end() || found->second.owner != importer)
    return CudaError(kCudaErrorInvalidValue, "no such event shared by this user");
  if (found->second.session == session)
    return CudaError(kCudaErrorInvalidContext, "the event belongs to this process");
  std::shared_ptr<SharedEvent> event = found->second.event.lock();
  if (event == nullptr) return CudaError(kCudaErrorInvalidValue, "the event is gone");
  const uint64_t exporter = found->second.session;
  lock.Unlock();
  if (shared_) shared_(exporter, session);
  return event;
}

}  // namespace detshare
