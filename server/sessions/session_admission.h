// Admission of sessions if a daemon has several engines: each asks before it opens a session.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace detshare {

// Decides about sessions. Any thread may call it.
class SessionAdmission {
 public:
  struct Decision {
    // ResourceExhausted, with the limit, if a limit of sessions is reached. Unavailable if no
    // process replies.
    absl::Status status;
    uint64_t session = 0;    // a number that no session of the daemon had before
    bool of_tenant = false;  // the limit that was reached is the tenant's
  };
  virtual ~SessionAdmission() = default;
  // Asks for one more session of `tenant`. May wait for a moment.
  virtual Decision Enter(const std::string& tenant) = 0;
  // Tells that an admitted session is gone. Does not wait.
  virtual void Leave(uint64_t session) = 0;
};

// Holds the admission of one session and gives it back when it is destroyed.
class AdmittedSession {
 public:
  AdmittedSession() = default;
  AdmittedSession(SessionAdmission* admission, uint64_t session)
      : admission_(admission), session_(session) {}
  ~AdmittedSession() {
    if (admission_ != nullptr) admission_->Leave(session_);
  }
  AdmittedSession(AdmittedSession&& other) noexcept
      : admission_(std::exchange(other.admission_, nullptr)), session_(other.session_) {}
  AdmittedSession& operator=(AdmittedSession&& other) noexcept {
    std::swap(admission_, other.admission_);
    std::swap(session_, other.session_);
    return *this;
  }

 private:
  SessionAdmission* admission_ = nullptr;
  uint64_t session_ = 0;
};

}  // namespace detshare
