// Replies to records of the ring that do not fit their reply slot (proto/ring_abi.h), until the
// client takes them. Counts all replies of the session that are not sent yet.
//
// Threading: any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "coroutine_runtime/quota.h"
#include "proto/mutex.h"

namespace detshare {

class LongReplies {
 public:
  // Bytes that a client may leave here, or leave unread on its connection.
  static constexpr uint64_t kMaxBytes = 64 << 20;

  struct Taken {
    std::string body;
    QuotaCharge charge;  // until the reply is sent
  };

  LongReplies();
  // Counts replies that are not sent yet. Replies to control calls over gRPC count even beyond the
  // limit, because their calls are executed. Further calls wait then.
  const std::shared_ptr<Quota>& quota() const { return quota_; }
  // Replaces an earlier reply of the slot. Returns false, and keeps nothing, if the client leaves
  // too many bytes here.
  bool Put(uint32_t slot, std::string reply);
  // None: the slot has no long reply, or it was taken before.
  std::optional<Taken> Take(uint32_t slot);

 private:
  const std::shared_ptr<Quota> quota_;
  Mutex mutex_;
  std::map<uint32_t, Taken> replies_ ABSL_GUARDED_BY(mutex_);  // by slot
};

}  // namespace detshare
