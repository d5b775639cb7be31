// The tenant endpoint of a job: its names, and the calls of detsharectl that open and close it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/slurm/arguments.h"
#include "tools/slurm/options.h"

namespace detshare::slurm {

// The endpoint's name. It does not depend on the user, whose name may be unknown when the job ends.
std::string EndpointName(uint32_t job);
// The name of the endpoint's tenant, "slurm-USER-JOB". Characters of the user's name that tenants
// cannot have become '_', and a long name is cut.
std::string TenantName(absl::string_view user, uint32_t job);
// The endpoint's directory on this host, which holds the endpoint's socket.
std::string EndpointDirectory(const Arguments& arguments, uint32_t job);
// Whether the endpoint is open, or was and its directory is still there. Only root can see it.
bool EndpointExists(const Arguments& arguments, uint32_t job);

// What the programs behind an endpoint have used, all together.
struct EndpointUse {
  uint64_t sessions = 0;     // that were opened
  double gpu_seconds = 0;    // in which they had work on a GPU
  uint64_t peak_memory = 0;  // bytes, on the GPU where they had most
};

// The figures in what `detsharectl --json endpoint close` prints; 0 for those that are missing.
EndpointUse ParseUse(const std::string& json);

// Opens the endpoint of the job. Ends one of the same job that is still open. Unavailable if no
// daemon replies, FailedPrecondition with the daemon's reason if it refuses.
absl::Status OpenEndpoint(const Arguments& arguments, uint32_t job, absl::string_view user,
                          const JobOptions& options);
// Ends the sessions of the endpoint and removes it. Unavailable if no daemon replies; then the
// endpoint may be there still. NotFound, with the daemon's message, if there is none.
absl::StatusOr<EndpointUse> CloseEndpoint(const Arguments& arguments, uint32_t job);

}  // namespace detshare::slurm
