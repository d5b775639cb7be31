// Replies to records of the ring that do not fit their reply slot (proto/ring_abi.h), until the
// client takes them.
//
// Threading: any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace detshare {

class LongReplies {
 public:
  // Bytes that a client may leave here.
  static constexpr uint64_t kMaxBytes = 64 << 20;

  // Replaces an earlier reply of the slot. Returns false, and keeps nothing, if the client leaves
  // too many bytes here.
  bool Put(uint32_t slot, std::string reply);
  // None: the slot has no long reply, or it was taken before.
  std::optional<std::string> Take(uint32_t slot);

 private:
  std::mutex mutex_;
  std::map<uint32_t, std::string> replies_;  // by slot; guarded by mutex_
  uint64_t bytes_ = 0;                       // of replies_; guarded by mutex_
};

}  // namespace detshare
