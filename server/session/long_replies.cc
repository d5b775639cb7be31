#include "server/session/long_replies.h"

#include <utility>

#include "coroutine_runtime/status_cuda.h"

namespace detshare {

LongReplies::LongReplies()
    : quota_(std::make_shared<Quota>(kMaxBytes, [](const Quota&, uint64_t) {
        return CudaError(kCudaErrorOutOfMemory, "the client leaves too many long replies");
      })) {}

bool LongReplies::Put(uint32_t slot, std::string reply) {
  Take(slot);
  std::optional<QuotaCharge> charge = Quota::TryTake(quota_, reply.size());
  if (!charge.has_value()) return false;
  const MutexLock lock(&mutex_);
  replies_.emplace(slot, Taken{std::move(reply), *std::move(charge)});
  return true;
}

std::optional<LongReplies::Taken> LongReplies::Take(uint32_t slot) {
  const MutexLock lock(&mutex_);
  const auto found = replies_.find(slot);
  if (found == replies_.end()) return std::nullopt;
  Taken taken = std::move(found->second);
  replies_.erase(found);
  return taken;
}

}  // namespace detshare
