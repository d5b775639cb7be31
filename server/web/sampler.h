// Samples what only frequent samples show: which tenants have work on which SMs, and which are
// throttled while others have work.
//
// One thread at a time uses it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "coroutine_runtime/by_tenant.h"
#include "server/sessions/session_manager.h"
#include "server/web/observation.h"

namespace detshare {

// One session on one device, at the time of a sample.
struct Look {
  std::string tenant;
  int first_sm = 0, sm_count = 0;  // of the partition where its work goes
  bool busy = false;               // has work queued or running on the device
  bool throttled = false;          // by the scheduler
  bool has_work = false;           // has work, as the scheduler knows it
  int rank = 0;
};

class Sampler {
 public:
  explicit Sampler(size_t devices) : device_busy_(devices, 0) {}

  // Takes a sample; `seconds` is the time since the sample before.
  void Look(SessionManager& manager, double seconds);
  // The parts of a sample, for tests: the tenants that have sessions, then each device.
  void Note(const std::set<std::string>& tenants, double seconds);
  void Count(size_t device, const std::vector<detshare::Look>& looks, double seconds);

  const std::map<std::string, TenantSamples>& tenants() const { return tenants_.all(); }
  const std::vector<double>& device_busy() const { return device_busy_; }

 private:
  ByTenant<TenantSamples> tenants_;
  std::set<std::string> in_use_;
  double now_ = 0;  // seconds of all samples
  std::vector<double> device_busy_;
};

}  // namespace detshare
