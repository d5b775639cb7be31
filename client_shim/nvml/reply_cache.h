// What the daemon says, kept for a moment so that programs which ask often are cheap.
//
// Any thread. Works in a child of fork as in its parent: the state is data under one mutex, which
// is held for no longer than a copy takes and is free in a child.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/nvml/nvml_types.h"
#include "proto/telemetry.pb.h"

namespace detshare::nvml {

using Snapshot = std::shared_ptr<const proto::TelemetryReply>;

// nvmlInit: asks the daemon. Counted, as NVML does it.
nvmlReturn_t Initialise();
// nvmlShutdown.
nvmlReturn_t ShutDown();
// NVML_SUCCESS between the two, else NVML_ERROR_UNINITIALIZED.
nvmlReturn_t CheckInitialised();

// Devices and processes, at most 50 ms old where the daemon's figures change. `utilization`: with
// how busy they are. NVML_ERROR_UNINITIALIZED; NVML_ERROR_DRIVER_NOT_LOADED when there is no
// daemon, NVML_ERROR_NO_PERMISSION, NVML_ERROR_TIMEOUT, and NVML_ERROR_UNKNOWN when it answers
// nonsense.
nvmlReturn_t GetSnapshot(Snapshot* snapshot, bool utilization = false);
// The same before nvmlInit, and freshly asked.
nvmlReturn_t AskForSnapshot(Snapshot* snapshot, bool utilization = false);

enum class Age {
  kLive,   // at most 100 ms old (50 ms here, 50 ms in the daemon)
  kFixed,  // never changes
};

struct HostQuery {
  std::string function;
  int device = -1, peer = -1;  // positions in the snapshot
  std::vector<uint32_t> arguments;
  auto operator<=>(const HostQuery&) const = default;
};

// What the host's NVML answers. The result is that of the way there; each reply has the function's
// own.
nvmlReturn_t AskHost(const std::vector<HostQuery>& queries, Age age,
                     std::vector<proto::HostReply>* replies);

// NVML_ERROR_NOT_SUPPORTED, and NVML_ERROR_UNINITIALIZED where that comes first. Named once in the
// log.
nvmlReturn_t Unsupported(const char* function);

}  // namespace detshare::nvml
