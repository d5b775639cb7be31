// How a trust domain's process asks the one that accepts connections whether it may open a session,
// on a pair of sockets that keep messages apart:
//
//     domain --[may tenant T have one more?]--> acceptor
//     domain <--[its number, or which limit]--- acceptor
//     domain --[session N is gone]------------> acceptor
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
// Nothing when there is none; does not block. What is malformed is passed over.
std::optional<AdmissionRequest> TakeAdmissionRequest(int channel);
// Dropped when the domain does not read.
void SendAdmissionReply(int channel, uint64_t question, const SessionBook::Decision& decision);

// ---- the domain's end. Any thread.
class AdmissionChannel final : public SessionAdmission {
 public:
  // Takes the descriptor. `timeout`: how long a session waits for the reply.
  AdmissionChannel(int channel, std::chrono::milliseconds timeout);
  ~AdmissionChannel() override;
  AdmissionChannel(const AdmissionChannel&) = delete;
  AdmissionChannel& operator=(const AdmissionChannel&) = delete;

  Decision Enter(const std::string& tenant) override;
  void Leave(uint64_t session) override;

 private:
  const int channel_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;       // one question at a time; guards what follows
  uint64_t question_ = 0;  // number of the latest
};

}  // namespace detshare
