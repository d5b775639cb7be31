// What the daemon's flags decide.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "policy/config/tenant_quota.h"
#include "policy/eviction.h"
#include "policy/placement.h"
#include "policy/policy.h"
#include "server/session/address_layout.h"
#include "server/session/session_limits.h"
#include "server/shared_memory/shared_region.h"

namespace detshare {

struct ServerOptions {
  std::string runtime_directory;  // of the sessions' files
  std::string policy = "auto";
  std::map<std::string, std::string> policy_parameters;
  std::string placement = policy::kDefaultPlacement;
  std::vector<policy::Tenant> tenants;  // with declared shares
  // By tenant; and of those that are not there.
  std::map<std::string, TenantQuota> tenant_quotas;
  TenantQuota default_quota;
  uint32_t max_sessions = 0;   // at a time; 0: as many as there are address windows
  uint32_t migrate_every = 0;  // as DeviceScheduler::Options
  int spin_us = 0;             // how long a session's worker looks for work before it sleeps
  int client_spin_us = 0;      // ... and a client for the GPU
  uint64_t image_store_bytes = uint64_t{1} << 30;  // of code that is kept for later processes
  // Host memory for device memory of idle sessions; 0: it does not leave its card.
  uint64_t swap_bytes = 0;
  policy::EvictionParameters eviction;
  uint64_t first_session = 1;
  bool lose_device_on_fault =
      false;  // a fault is taken for the loss of the device, as with a real GPU: for tests
  RegionSizes region;
  SessionLimits limits;
  AddressWindows windows;
};

}  // namespace detshare
