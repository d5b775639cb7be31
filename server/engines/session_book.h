// Numbers the sessions in all engines, and counts the sessions of each tenant over all engines.
//
// Holds plain values. One thread at a time uses it.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace detshare {

class SessionBook {
 public:
  // Limits of sessions at a time; 0: no limit.
  struct Limits {
    uint64_t all = 0;
    std::map<std::string, uint64_t> tenants;
    uint64_t other_tenants = 0;  // for each tenant that `tenants` does not name
  };
  enum class Outcome : uint32_t { kEnter, kTenantIsFull, kDaemonIsFull, kProcessIsFull };
  struct Decision {
    Outcome outcome = Outcome::kEnter;
    uint64_t session = 0;          // set if the outcome is kEnter
    uint64_t used = 0, limit = 0;  // set for the other outcomes
  };
  // The number of sessions that one process may have. It is above what a process has room for.
  static constexpr size_t kMaxOfProcess = 4096;

  // Takes effect at once. Sessions above a lower limit stay.
  void SetLimits(Limits limits) { limits_ = std::move(limits); }
  Decision Enter(pid_t process, const std::string& tenant);
  // Counts a session that the process has from another supervisor. Limits do not matter. Does
  // nothing if the process has it already, or too many.
  void GoOn(pid_t process, uint64_t session, const std::string& tenant);
  // Does nothing if the process has no such session.
  void Leave(pid_t process, uint64_t session);
  // Removes all sessions of a process that has ended.
  void Forget(pid_t process);

  // The number of the next session. It never becomes lower.
  uint64_t next() const { return next_; }
  void BeginAt(uint64_t next) { next_ = std::max(next_, next); }
  // The number of sessions of the process, and their numbers.
  size_t CountOf(pid_t process) const;
  std::vector<uint64_t> SessionsOf(pid_t process) const;
  // Whether a process has it.
  bool Has(uint64_t session) const;

 private:
  void Give(const std::string& tenant);

  Limits limits_;
  uint64_t next_ = 1;
  uint64_t all_ = 0;
  std::map<std::string, uint64_t> tenants_;  // tenants that have a session
  std::map<pid_t, std::map<uint64_t, std::string>> sessions_;
};

}  // namespace detshare
