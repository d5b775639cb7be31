// Which sessions there are in all processes of a daemon with strict isolation: numbers them, and
// counts how many each tenant has, whichever users they are.
//
// Plain values, one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace detshare {

class SessionBook {
 public:
  // At a time; 0: no limit.
  struct Limits {
    uint64_t all = 0;
    std::map<std::string, uint64_t> tenants;
    uint64_t other_tenants = 0;  // each of those that are not named
  };
  enum class Outcome : uint32_t { kEnter, kTenantIsFull, kDaemonIsFull, kProcessIsFull };
  struct Decision {
    Outcome outcome = Outcome::kEnter;
    uint64_t session = 0;          // of kEnter
    uint64_t used = 0, limit = 0;  // of the others
  };
  // Of one process: more than it can have.
  static constexpr size_t kMaxOfProcess = 4096;

  // Holds at once; what is above a lower limit stays.
  void SetLimits(Limits limits) { limits_ = std::move(limits); }
  Decision Enter(pid_t process, const std::string& tenant);
  // Nothing happens when the process has no such session.
  void Leave(pid_t process, uint64_t session);
  // All of its sessions are gone.
  void Forget(pid_t process);

 private:
  void Give(const std::string& tenant);

  Limits limits_;
  uint64_t next_ = 1;
  uint64_t all_ = 0;
  std::map<std::string, uint64_t> tenants_;  // that have a session
  std::map<pid_t, std::map<uint64_t, std::string>> sessions_;
};

}  // namespace detshare
