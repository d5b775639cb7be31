// What there is to see of a daemon at one moment: plain values, taken once and shown in several
// ways.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coroutine_runtime/device_scheduler.h"
#include "coroutine_runtime/work_totals.h"
#include "policy/policy.h"
#include "policy/config/tenant_quota.h"
#include "server/sessions/tenant_use.h"
#include "server/web/process_figures.h"

namespace detshare {

// How long a tenant was throttled while others had work, by their names. Its own: until its own work was
// far enough.
using WaitsFor = std::map<std::string, double>;  // seconds

// What is sampled (sampler.h).
struct TenantSamples {
  // SMs of the partition, times the time with work; divided among those who are on an SM.
  double sm_seconds = 0;
  double busy_seconds = 0;  // of at least one session on some device
  WaitsFor waits_for;
};

struct TenantObservation {
  policy::Tenant tenant;
  TenantUse use;
  TenantQuota quota;
  WorkTotals work;
  double memory_traffic = 0;  // bytes, estimated
  TenantSamples samples;
};

struct DeviceObservation {
  std::string name, uuid;
  int sm_count = 0;
  uint64_t total_memory = 0, used_memory = 0;
  double peak_bandwidth = 0;  // bytes a second; 0: not known
  double busy_seconds = 0;    // sampled
  absl::Status health;
  std::vector<DeviceScheduler::PartitionView> partitions;  // the whole device first
};

// Where a session's work goes on one of its devices.
struct PlaceObservation {
  int device = 0;  // among those of the observation
  std::string partition;
  int first_sm = 0, sm_count = 0;  // of the partition; 0 SMs: it has none yet
  bool followed = false;           // else nothing is known of what follows
  bool throttled = false;               // nothing of it is given to the hardware
  int rank = 0;
};

struct SessionObservation {
  uint64_t id = 0;
  std::string user;  // with strict isolation; else ""
  std::string tenant, program, state;
  bool open = false;  // it runs, or has had a fault
  int pid = 0;        // 0: in a foreign pid namespace
  int64_t age_ms = 0;
  uint64_t device_memory = 0, operations = 0, kernels = 0;
  std::vector<PlaceObservation> places;  // one for each of its devices, in its order
};

// With strict isolation: one user's processes of the daemon, the one that runs and those before.
struct DomainObservation {
  bool runs = false, responds = false;
  uint64_t starts = 0;
  uint64_t failures = 0;    // of these, those that ended by themselves
  uint64_t timeouts = 0;  // questions for figures
  uint64_t sessions = 0;    // open ones of the process that runs
  double cpu_seconds = 0;   // of all
  uint64_t resident_bytes = 0;
};

struct Observation {
  int64_t at_ns = 0;    // of the monotonic clock
  int64_t unix_ms = 0;  // of the wall's
  std::string backend, policy;
  double uptime_seconds = 0;
  uint64_t device_losses = 0;
  std::vector<DeviceObservation> devices;
  std::vector<SessionObservation> sessions;
  size_t max_sessions = 0;
  uint64_t swap_limit = 0, swap_used = 0;  // bytes of host memory for what is not on the cards
  std::map<absl::StatusCode, uint64_t> refusals;
  std::map<std::string, TenantObservation> tenants;
  ProcessFigures process;
  std::map<std::string, DomainObservation> domains;  // by user; none without strict isolation
};

}  // namespace detshare
