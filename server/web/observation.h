// An observation of a daemon at one moment: plain values, collected once and shown in several
// forms.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coroutine_runtime/by_tenant.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_scheduler.h"
#include "coroutine_runtime/work_totals.h"
#include "policy/config/tenant_quota.h"
#include "policy/policy.h"
#include "proto/admin.pb.h"
#include "server/sessions/tenant_use.h"
#include "server/web/process_figures.h"

namespace detshare {

// For each tenant name, how long a tenant was throttled while that tenant had work. The tenant's
// own name stands for time in which it was throttled behind its own work.
using WaitsFor = std::map<std::string, double>;  // seconds

// Sampled values (sampler.h).
struct TenantSamples {
  // Number of SMs of the partition times the time with work, divided among the sessions that use an
  // SM.
  double sm_seconds = 0;
  double busy_seconds = 0;  // with work of at least one session on some device
  WaitsFor waits_for;
};

// Removes waits for tenants that have lost their figures.
inline void ForgetWaits(ByTenant<TenantSamples>* tenants) {
  std::vector<std::string> names;
  for (const auto& [name, samples] : tenants->all()) names.push_back(name);
  for (const std::string& name : names) {
    std::erase_if(tenants->At(name).waits_for,
                  [&](const auto& wait) { return !tenants->all().contains(wait.first); });
  }
}

struct TenantObservation {
  policy::Tenant tenant;
  proto::Owner owner;  // as Owners::OfTenant()
  TenantUse use;
  TenantQuota quota;
  // Bytes that count against the quota, on each device. The quota holds for each engine, so with
  // several engines it is the largest.
  std::vector<uint64_t> charged_memory;
  WorkTotals work;
  double memory_traffic = 0;  // bytes, estimated
  TenantSamples samples;
};

struct DeviceObservation {
  std::string name, uuid;
  int sm_count = 0;
  uint64_t total_memory = 0, used_memory = 0;
  double peak_bandwidth = 0;  // bytes per second; 0: not known
  double busy_seconds = 0;    // sampled
  absl::Status health;
  std::vector<PartitionView> partitions;  // the whole device first
  Preemption preemption;
  bool beside_native = false;  // as DeviceScheduler::BesideNative()
};

// The SMs on which a session's work runs, on one of its devices.
struct PlaceObservation {
  int device = 0;  // index in Observation::devices
  std::string partition;
  int first_sm = 0, sm_count = 0;  // of the partition; 0 SMs: it has none yet
  bool followed = false;           // if false, nothing is known of the members below
  bool throttled = false;          // none of its operations are given to the hardware
  int rank = 0;
  bool bound = false;  // its work stays in its present time-slice group
};

struct SessionObservation {
  uint64_t id = 0;
  std::string group;  // of its engine, if there are several; else ""
  std::string tenant, program, state;
  bool open = false;  // the session runs, or has had a fault
  int pid = 0;        // 0: in a foreign pid namespace
  int64_t age_ms = 0;
  uint64_t device_memory = 0, operations = 0, kernels = 0;
  std::vector<PlaceObservation> places;  // one for each of its devices, in its order
};

// The engines of one isolation group, the running one and those before it.
struct EngineObservation {
  bool runs = false, responds = false;
  uint64_t starts = 0;
  uint64_t failures = 0;   // processes that ended by themselves
  uint64_t timeouts = 0;   // requests for figures without a reply in time
  uint64_t sessions = 0;   // open sessions of the running process
  double cpu_seconds = 0;  // of all processes
  uint64_t resident_bytes = 0;
};

struct Observation {
  int64_t at_ns = 0;    // of the monotonic clock
  int64_t unix_ms = 0;  // of the real-time clock
  std::string backend, policy;
  double uptime_seconds = 0;
  uint64_t device_losses = 0;
  std::vector<DeviceObservation> devices;
  std::vector<SessionObservation> sessions;
  size_t max_sessions = 0;
  // Bytes of host memory for device memory that is not on the cards.
  uint64_t swap_limit = 0, swap_used = 0;
  std::map<absl::StatusCode, uint64_t> refusals;
  std::map<std::string, TenantObservation> tenants;
  ProcessFigures process;
  // By isolation group; empty where one process serves all programs.
  std::map<std::string, EngineObservation> engines;
};

}  // namespace detshare
