// Lets an engine ask the supervisor whether it may open a session. They exchange messages over a
// socketpair that keeps message boundaries:
//
//     engine --[may tenant T open one more session?]--> supervisor
//     engine <--[its number, or which limit]----------- supervisor
//     engine --[session N is gone]--------------------> supervisor
//     engine --[session N of tenant T goes on]--------> supervisor    to one that adopts the engine
//     engine --[those were all]-----------------------> supervisor    the same
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "proto/mutex.h"
#include "server/engines/session_book.h"
#include "server/sessions/session_admission.h"

namespace detshare {

// ---- the supervisor's end
struct AdmissionRequest {
  enum class Kind { kEnter, kLeave, kGoesOn, kToldAll };
  Kind kind = Kind::kEnter;
  uint64_t question = 0;  // kEnter: its number
  uint64_t session = 0;   // kLeave and kGoesOn
  std::string tenant;     // kEnter and kGoesOn
};
// Returns the next request, or nothing if there is none. Does not block. Skips malformed messages.
std::optional<AdmissionRequest> TakeAdmissionRequest(int channel);
// Sends a reply. Drops it if the engine does not read.
void SendAdmissionReply(int channel, uint64_t question, const SessionBook::Decision& decision);

// ---- The engine's end. Any thread may call it.
class AdmissionChannel final : public SessionAdmission {
 public:
  // Owns the descriptor. `timeout` is how long Enter() waits for the reply, and for a supervisor
  // that replaces one that is gone.
  AdmissionChannel(int channel, std::chrono::milliseconds timeout);
  ~AdmissionChannel() override;
  AdmissionChannel(const AdmissionChannel&) = delete;
  AdmissionChannel& operator=(const AdmissionChannel&) = delete;

  Decision Enter(const std::string& tenant) override;
  void Leave(uint64_t session) override;
  // Goes on with another supervisor, and tells it of all sessions. Owns the descriptor. Waits while
  // the supervisor does not read, up to the timeout.
  void Replace(int channel);

 private:
  struct Channel;
  std::shared_ptr<Channel> channel() const;
  // Returns nothing if the channel's other end is gone.
  std::optional<Decision> Ask(const std::shared_ptr<Channel>& channel, const std::string& tenant,
                              std::chrono::steady_clock::time_point until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(asking_);

  const std::chrono::milliseconds timeout_;
  Mutex asking_ ABSL_ACQUIRED_BEFORE(mutex_);       // admits one question at a time
  uint64_t question_ ABSL_GUARDED_BY(asking_) = 0;  // number of the latest question
  mutable Mutex mutex_;
  CondVar replaced_;
  std::shared_ptr<Channel> channel_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::string> open_ ABSL_GUARDED_BY(mutex_);  // sessions and their tenants
};

}  // namespace detshare
