// Events that sessions show to each other: whoever may use one gets a token, random enough that
// nobody guesses it, and hands it to another process of the same user; that process shows it to the
// daemon.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/shared_event.h"

namespace detshare {

// Any thread. A token does not keep its event: it is good as long as some session has the event.
class SharedEvents {
 public:
  using Token = std::array<uint8_t, 16>;

  // The event's token, always the same. `session` is the one that made it.
  absl::StatusOr<Token> Export(uid_t owner, uint64_t session,
                               const std::shared_ptr<SharedEvent>& event);
  // CUDA_ERROR_INVALID_VALUE for a token that stands for nothing, or for another user's event;
  // CUDA_ERROR_INVALID_CONTEXT in the session that made it.
  absl::StatusOr<std::shared_ptr<SharedEvent>> Import(uid_t importer, uint64_t session,
                                                      const Token& token);

 private:
  struct Entry {
    uid_t owner = 0;
    uint64_t session = 0;
    std::weak_ptr<SharedEvent> event;
  };

  void DropEnded();

  std::mutex mutex_;
  std::map<Token, Entry> entries_;              // guarded by mutex_
  std::map<const SharedEvent*, Token> tokens_;  // guarded by mutex_: of the entries
  size_t drop_at_ = 64;  // guarded by mutex_: entries that make a look worth it
};

}  // namespace detshare
