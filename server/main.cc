// detshared: reads the flags and serves.
#include <sys/prctl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/logging.h"
#include "server/device_inquiry.h"
#include "server/engines/isolation_group.h"
#include "server/flags.h"
#include "server/serve_daemon.h"
#include "server/serve_supervisor.h"
#include "server/startup.h"

int main(int argc, char** argv) {
  detshare::LogToJournal();
  detshare::Flags flags;
  if (const std::optional<int> code = detshare::ParseFlags(argc, argv, &flags)) return *code;
  // For lists of processes: the name of a process that was started by /proc/self/exe would be `exe`.
  prctl(PR_SET_NAME, flags.engine_fd >= 0 ? "detshare-engine" : "detshared");
  absl::StatusOr<detshare::Startup> startup =
      detshare::Prepare(std::vector<std::string>(argv, argv + argc), flags);
  if (!startup.ok()) {
    detshare::LogErrorLines(startup.status().message());
    return 1;
  }
  if (flags.devices_fd >= 0) detshare::ReplyDevices(*startup);
  const bool isolates =
      detshare::ParseIsolation(startup->config.isolation) != detshare::Isolation::kNone;
  // The supervisor starts engines with --engine-fd.
  return isolates && flags.engine_fd < 0 ? detshare::ServeSupervisor(*startup)
                                         : detshare::ServeDaemon(*std::move(startup));
}
