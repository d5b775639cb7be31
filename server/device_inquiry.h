// Learns of the host's devices without opening them in this process: a short-lived process of the
// same program opens them and describes them. It takes nothing from clients.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/admin.pb.h"
#include "server/startup.h"

namespace detshare {

// Starts such a process with this command line of the daemon, and returns the backend and the
// devices that it describes. The first such process of a supervisor proves their preemption, for all engines.
// Takes a second or two, and a minute at most; ends soon once `stop` is true. Any thread may call it.
absl::StatusOr<proto::Status> InquireDevices(std::vector<std::string> command,
                                             const std::atomic<bool>& stop);

// What the process does: describes the devices to flags.devices_fd, and ends.
[[noreturn]] void ReplyDevices(const Startup& startup);

}  // namespace detshare
