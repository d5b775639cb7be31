#include "server/telemetry/process_ids.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace detshare {
namespace {

uint64_t OwnNamespace() {
  struct stat status {};
  REQUIRE(stat("/proc/self/ns/pid", &status) == 0);
  return status.st_ino;
}

TEST_CASE("A viewer in the daemon's own namespace knows every process by the daemon's number") {
  for (const uint64_t viewer_namespace : {OwnNamespace(), uint64_t{0}}) {
    const ProcessIds ids(getpid(), viewer_namespace);
    CHECK(ids.OfViewer(getpid(), OwnNamespace()) == static_cast<uint32_t>(getpid()));
    CHECK(ids.OfViewer(getppid(), 0) == static_cast<uint32_t>(getppid()));
  }
}

TEST_CASE("A process that is gone has no number") {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  const ProcessIds ids(getpid(), OwnNamespace());
  CHECK(ids.OfViewer(child, OwnNamespace()) == 0);
  CHECK(ids.OfViewer(0, OwnNamespace()) == 0);
}

TEST_CASE("A viewer that the daemon does not see, or that is gone, sees no process") {
  CHECK(ProcessIds(0, OwnNamespace()).OfViewer(getpid(), OwnNamespace()) == 0);
}

}  // namespace
}  // namespace detshare
