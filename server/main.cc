// detshared: reads the flags and serves.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/logging.h"
#include "server/flags.h"
#include "server/serve_daemon.h"
#include "server/serve_domains.h"
#include "server/startup.h"

int main(int argc, char** argv) {
  detshare::LogToJournal();
  detshare::Flags flags;
  if (const std::optional<int> code = detshare::ParseFlags(argc, argv, &flags)) return *code;
  absl::StatusOr<detshare::Startup> startup =
      detshare::Prepare(std::vector<std::string>(argv, argv + argc), flags);
  if (!startup.ok()) {
    detshare::LogErrorLines(startup.status().message());
    return 1;
  }
  // With strict isolation the listening process starts a process for each user, with --domain-fd.
  const bool accepts_only = startup->config.isolation == "strict" && flags.domain_fd < 0;
  return accepts_only ? detshare::ServeDomains(*startup)
                      : detshare::ServeDaemon(*std::move(startup));
}
