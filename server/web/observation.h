// What there is to see of a daemon at one moment: plain values, taken once and shown in several
// ways.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "policy/policy.h"
#include "server/session_manager.h"
#include "server/web/process_figures.h"

namespace detshare {

// How long a tenant was held while others had work, by their names. Its own: until its own work was
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

struct Observation {
  int64_t at_ns = 0;    // of the monotonic clock
  int64_t unix_ms = 0;  // of the wall's
  std::string backend, policy;
  double uptime_seconds = 0;
  uint64_t device_losses = 0;
  std::vector<DeviceObservation> devices;
  std::vector<SessionManager::SessionInfo> sessions;
  size_t most_sessions = 0;
  uint64_t swap_limit = 0, swap_used = 0;  // bytes of host memory for what is not on the cards
  std::map<absl::StatusCode, uint64_t> refusals;
  std::map<std::string, TenantObservation> tenants;
  ProcessFigures process;
};

}  // namespace detshare
