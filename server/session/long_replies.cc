#include "server/session/long_replies.h"

#include <utility>

namespace detshare {

bool LongReplies::Put(uint32_t slot, std::string reply) {
  Take(slot);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (reply.size() > kMaxBytes - bytes_) return false;
  bytes_ += reply.size();
  replies_.emplace(slot, std::move(reply));
  return true;
}

std::optional<std::string> LongReplies::Take(uint32_t slot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = replies_.find(slot);
  if (found == replies_.end()) return std::nullopt;
  std::string reply = std::move(found->second);
  replies_.erase(found);
  bytes_ -= reply.size();
  return reply;
}

}  // namespace detshare
