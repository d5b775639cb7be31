// Who lets sessions in when a daemon has several processes: each of them asks before it opens one.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace detshare {

// Any thread.
class SessionAdmission {
 public:
  struct Decision {
    // ResourceExhausted, with the limit, when there are as many as there may be; Unavailable when
    // nobody decides.
    absl::Status status;
    uint64_t session = 0;    // a number that no session of the daemon had before
    bool of_tenant = false;  // it was a limit of the tenant's
  };
  virtual ~SessionAdmission() = default;
  // May wait for a moment.
  virtual Decision Enter(const std::string& tenant) = 0;
  // Does not wait.
  virtual void Leave(uint64_t session) = 0;
};

// A session that was let in; leaves when it is destroyed.
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
