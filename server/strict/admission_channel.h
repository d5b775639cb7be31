// Lets the process of a trust domain ask the accepting process whether it may open a session. They
// exchange messages over a socketpair that keeps message boundaries:
//
//     domain --[may tenant T open one more session?]--> acceptor
//     domain <--[its number, or which limit]----------- acceptor
//     domain --[session N is gone]--------------------> acceptor
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "server/sessions/session_admission.h"
#include "server/strict/session_book.h"

namespace detshare {

// ---- the acceptor's end
struct AdmissionRequest {
  uint64_t question = 0;  // 0: `session` is gone
  uint64_t session = 0;
  std::string tenant;
};
// Returns the next request, or nothing if there is none. Does not block. Skips malformed messages.
std::optional<AdmissionRequest> TakeAdmissionRequest(int channel);
// Sends a reply. Drops it if the domain does not read.
void SendAdmissionReply(int channel, uint64_t question, const SessionBook::Decision& decision);

// ---- The domain's end. Any thread may call it.
class AdmissionChannel final : public SessionAdmission {
 public:
  // Owns the descriptor. `timeout` is how long Enter() waits for the reply.
  AdmissionChannel(int channel, std::chrono::milliseconds timeout);
  ~AdmissionChannel() override;
  AdmissionChannel(const AdmissionChannel&) = delete;
  AdmissionChannel& operator=(const AdmissionChannel&) = delete;

  Decision Enter(const std::string& tenant) override;
  void Leave(uint64_t session) override;

 private:
  const int channel_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;       // admits one question at a time; guards what follows
  uint64_t question_ = 0;  // number of the latest question
};

}  // namespace detshare
