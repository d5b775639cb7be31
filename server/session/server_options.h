// The settings that the daemon's flags determine.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/config/tenant_quota.h"
#include "policy/eviction.h"
#include "policy/placement.h"
#include "policy/policy.h"
#include "server/session/address_layout.h"
#include "server/session/session_limits.h"
#include "server/shared_memory/client_file.h"
#include "server/shared_memory/shared_region.h"

namespace detshare {

struct EnginePage;
struct EnginePeers;

struct ServerOptions {
  std::string runtime_directory;  // holds the sessions' files
  std::string policy = "auto";
  std::map<std::string, std::string> policy_parameters;
  std::string placement = policy::kDefaultPlacement;
  std::vector<policy::Tenant> tenants;  // with declared shares
  // Quotas by tenant name; tenants without an entry get the default.
  std::map<std::string, TenantQuota> tenant_quotas;
  TenantQuota default_quota;
  uint32_t max_sessions = 0;   // at the same time; 0: one for each address window
  uint32_t migrate_every = 0;  // as DeviceScheduler::Options
  // As DeviceScheduler::Options; null: this process is the only one on its devices.
  EnginePage* engine_page = nullptr;
  const EnginePeers* engine_peers = nullptr;
  // Lets the other processes call SessionManager::LookForRoom() soon. Does not wait. Any thread may
  // call it. Not empty if there is a page.
  std::function<void()> wake_engines;
  int spin_us = 0;         // how long a session's worker looks for work before it sleeps
  int client_spin_us = 0;  // how long a client spins for the GPU before it sleeps
  uint64_t image_store_bytes = uint64_t{1} << 30;  // of code kept for later processes
  // Host memory for the evicted device memory of idle sessions, over all processes on the devices; 0:
  // no eviction.
  uint64_t swap_bytes = 0;
  policy::EvictionParameters eviction;
  uint64_t first_session = 1;
  // Another process takes the place of this one if it ends: it is an engine. So sessions whose work
  // does not end count as a lost device.
  bool replaceable = false;
  // Opens a client's file as OpenClientFile() does, by the client's ticket (Peer::ticket); empty:
  // this process opens it itself. Any thread may call it.
  std::function<absl::StatusOr<int>(const std::string& ticket, const ClientMapping& mapping,
                                    uint64_t bytes)>
      open_client_file;
  bool lose_device_on_fault = false;  // for tests: a fault loses the device, as on a real GPU
  RegionSizes region;
  SessionLimits limits;
  AddressWindows windows;
};

}  // namespace detshare
