// The figures of all users' processes as those of one daemon, with strict isolation.
//
// Counts never fall: what a process has counted stays when it has ended, and while it does not
// answer. What is there at the moment (sessions, memory) is that of the processes that answer.
//
// Plain values, one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coroutine_runtime/by_tenant.h"
#include "server/strict/domain_process.h"
#include "server/web/observation.h"

namespace detshare {

class DomainSum {
 public:
  // A tenant that is configured has series of its own, whoever came before it.
  void Reserve(const std::string& tenant);
  void Begun(const std::string& user, pid_t process);
  void Ended(pid_t process, DomainEnd how);
  // All that answered in one round; `seconds` since the round before. Who is not known any more is
  // left out.
  void Update(std::map<pid_t, Observation> replies, double seconds);
  // It was asked and did not answer in time.
  void Missed(pid_t process);

  // Without times and the figures of a process, which are not sums.
  Observation Sum() const;

 private:
  struct Process {
    std::string user;
    bool received = false, responds = false;
    Observation last;     // of its latest answer
    double silent_s = 0;  // since then, while others answered
  };

  // What was sampled since the last answer of each. Users take turns on a device: what they see of
  // it together is not more than there is.
  void AddSamples(const std::map<pid_t, Observation>& replies, double seconds);

  std::map<pid_t, Process> processes_;
  // Of processes that have ended; and by user, of all.
  ByTenant<TenantObservation> ended_;
  std::map<absl::StatusCode, uint64_t> ended_refusals_;
  ByTenant<DomainObservation> users_;
  // Of all, as far as they were heard.
  ByTenant<TenantSamples> samples_;
  std::vector<DeviceObservation> devices_;  // as they were last seen; busy_seconds is the sum
  std::string backend_, policy_;
  uint64_t device_losses_ = 0;
};

}  // namespace detshare
