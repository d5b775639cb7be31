#include "server/telemetry/process_ids.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace detshare {
namespace {

TEST_CASE("A viewer in the daemon's own namespace knows every process by the daemon's number") {
  const ProcessIds ids(getpid());
  CHECK(ids.OfViewer(getpid()) == static_cast<uint32_t>(getpid()));
  CHECK(ids.OfViewer(getppid()) == static_cast<uint32_t>(getppid()));
}

TEST_CASE("A process that is gone has no number") {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  CHECK(ProcessIds(getpid()).OfViewer(child) == 0);
  CHECK(ProcessIds(getpid()).OfViewer(0) == 0);
}

TEST_CASE("A viewer that the daemon does not see, or that is gone, sees no process") {
  CHECK(ProcessIds(0).OfViewer(getpid()) == 0);
}

}  // namespace
}  // namespace detshare
