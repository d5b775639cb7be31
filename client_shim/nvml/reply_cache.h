// The daemon's replies, kept for a moment so that frequent questions are cheap.
//
// Any thread. It works in a child of fork as in the parent: the state is plain data under one
// mutex. The mutex is held only as long as a copy takes, and it is free in a child.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/nvml/nvml_types.h"
#include "proto/telemetry.pb.h"

namespace detshare::nvml {

using Snapshot = std::shared_ptr<const proto::TelemetryReply>;

// nvmlInit: asks the daemon. Calls are counted, as NVML counts them.
nvmlReturn_t Initialise();
// nvmlShutdown.
nvmlReturn_t ShutDown();
// NVML_SUCCESS between nvmlInit and the last nvmlShutdown, else NVML_ERROR_UNINITIALIZED.
nvmlReturn_t CheckInitialised();

// The devices and processes. Values that change in the daemon are at most 50 ms old. `utilization`:
// with the devices' utilization. NVML_ERROR_UNINITIALIZED: before nvmlInit.
// NVML_ERROR_DRIVER_NOT_LOADED: there is no daemon. NVML_ERROR_NO_PERMISSION and
// NVML_ERROR_TIMEOUT: of the call to the daemon. NVML_ERROR_UNKNOWN: the daemon's reply makes no
// sense.
nvmlReturn_t GetSnapshot(Snapshot* snapshot, bool utilization = false);
// The same without nvmlInit. Always asks the daemon.
nvmlReturn_t AskForSnapshot(Snapshot* snapshot, bool utilization = false);

// The time for which a reply may be kept.
enum class Age {
  kLive,   // at most 100 ms old (50 ms here, 50 ms in the daemon)
  kFixed,  // never changes
};

// A question to the host's NVML.
struct HostQuery {
  std::string function;
  int device = -1, peer = -1;  // positions in the snapshot
  std::vector<uint32_t> arguments;
  auto operator<=>(const HostQuery&) const = default;
};

// Asks the host's NVML. The result is an error of the call to the daemon, or NVML_SUCCESS. Each
// reply has its function's own result.
nvmlReturn_t AskHost(const std::vector<HostQuery>& queries, Age age,
                     std::vector<proto::HostReply>* replies);

// Returns NVML_ERROR_NOT_SUPPORTED, or NVML_ERROR_UNINITIALIZED before nvmlInit. Logs the
// function's name once.
nvmlReturn_t Unsupported(const char* function);

}  // namespace detshare::nvml
