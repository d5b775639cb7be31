// What a process of one user says of itself to the one that listens (proto/observation.proto).
#pragma once

#include "proto/observation.pb.h"
#include "server/web/observation.h"

namespace detshare {

// All but the times of the observation and the files and threads of its process.
void ToMessage(const Observation& seen, proto::Observation* message);
// What is no figure that an observation could have (a class, a bucket, a device that is not there)
// is left out.
Observation FromMessage(const proto::Observation& message);

}  // namespace detshare
