// Writes what a job has used to Slurm's accounting: to the job's AdminComment in slurmdbd.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tools/slurm/arguments.h"
#include "tools/slurm/endpoint.h"

namespace detshare::slurm {

// One line: "detshare NODE: gpu_seconds=12.3 peak_mib=512.0 sessions=2".
std::string UseText(absl::string_view node, const EndpointUse& use);

// The comment with the node's line added to it. A line of the same node is replaced, and all other
// text stays. Parts of the comment are separated by "; ".
std::string AddUse(absl::string_view comment, absl::string_view node, const EndpointUse& use);

// Adds the node's figures to the AdminComment of the job's latest record. sacctmgr turns the whole
// comment into lower case. Unavailable if Slurm keeps
// no accounting, or its programs do not do it; the message says why.
absl::Status RecordUse(const Arguments& arguments, uint32_t job, absl::string_view node,
                       const EndpointUse& use);

}  // namespace detshare::slurm
