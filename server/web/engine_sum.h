// Adds up the figures of all engines as those of one daemon.
//
// Counts never fall: the counts of a process stay when it has ended, and while it does not reply.
// Momentary figures (sessions, memory) are the sum over the processes that reply. A tenant of which no
// process tells any more may lose its place to another one (coroutine_runtime/by_tenant.h).
//
// Holds plain values. One thread at a time uses it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "coroutine_runtime/by_tenant.h"
#include "server/engines/engine_process.h"
#include "server/web/observation.h"

namespace detshare {

class EngineSum {
 public:
  // Gives a configured tenant a series of its own, even if many other names came first.
  void Reserve(const std::string& tenant);
  void Begun(const std::string& group, pid_t process);
  void Ended(pid_t process, EngineEnd how);
  // Adds the replies of one round; `seconds` is the time since the round before. Skips processes
  // that are not known any more.
  void Update(std::map<pid_t, Observation> replies, double seconds);
  // Tells that the process was asked and did not reply in time.
  void Missed(pid_t process);

  // Returns the sum, without times and without the figures of a process (Observation::process).
  Observation Sum() const;

 private:
  struct Process {
    std::string group;
    bool received = false, responds = false;
    Observation last;  // the latest reply
    // Seconds since that reply in which other processes replied.
    double silent_s = 0;
  };

  // Adds what was sampled since the last reply of each process. Engines take turns on a device, so
  // the sum over engines is limited to what the device has.
  void AddSamples(const std::map<pid_t, Observation>& replies, double seconds);
  // Keeps what a process no longer tells of, and notes of which tenants the processes tell with these
  // replies.
  void KeepForgotten(const Observation& last, const Observation& now);
  void NoteTenants(const std::map<pid_t, Observation>& replies);
  int64_t now() const { return static_cast<int64_t>(now_s_ * 1e9); }

  std::map<pid_t, Process> processes_;
  double now_s_ = 0;               // seconds of all rounds
  std::set<std::string> told_of_;  // tenants in the latest reply of some process
  // Sums over processes that have ended; groups_ has the sums of all processes by group.
  ByTenant<TenantObservation> ended_;
  std::map<absl::StatusCode, uint64_t> ended_refusals_;
  ByTenant<EngineObservation> groups_;
  // Samples from all replies.
  ByTenant<TenantSamples> samples_;
  std::vector<DeviceObservation> devices_;  // as last observed; busy_seconds is the sum
  std::string backend_, policy_;
  uint64_t device_losses_ = 0;
};

}  // namespace detshare
