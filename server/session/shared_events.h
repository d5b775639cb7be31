// Events that sessions share. The exporting process gets a token that is too random to guess. It
// passes the token to another process of the same user, which presents it to the daemon.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/shared_event.h"
#include "proto/mutex.h"

namespace detshare {

// Threading: any thread. A token does not keep its event alive. It is valid as long as any session
// has the event.
class SharedEvents {
 public:
  using Token = std::array<uint8_t, 16>;
  // Called when a session has the event of another one from now on.
  using Shared = std::function<void(uint64_t exporter, uint64_t importer)>;

  // `shared` may be empty.
  explicit SharedEvents(Shared shared = {}) : shared_(std::move(shared)) {}

  // Returns the event's token. Every call returns the same token. `session` is the session that
  // created the event.
  absl::StatusOr<Token> Export(uid_t owner, uint64_t session,
                               const std::shared_ptr<SharedEvent>& event);
  // CUDA_ERROR_INVALID_VALUE for an unknown token and for another user's event,
  // CUDA_ERROR_INVALID_CONTEXT in the session that created the event.
  absl::StatusOr<std::shared_ptr<SharedEvent>> Import(uid_t importer, uint64_t session,
                                                      const Token& token);

 private:
  struct Entry {
    uid_t owner = 0;
    uint64_t session = 0;
    std::weak_ptr<SharedEvent> event;
  };

  void DropEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Shared shared_;
  Mutex mutex_;
  std::map<Token, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::map<const SharedEvent*, Token> tokens_ ABSL_GUARDED_BY(mutex_);  // tokens of entries_
  size_t drop_at_ ABSL_GUARDED_BY(mutex_) = 64;  // number of entries that triggers DropEnded()
};

}  // namespace detshare
