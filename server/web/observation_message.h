// Converts an observation to the message that an engine sends to the supervisor
// (proto/observation.proto), and back.
#pragma once

#include "proto/observation.pb.h"
#include "server/web/observation.h"

namespace detshare {

// Writes all except the times of the observation and the files and threads of its process.
void ToMessage(const Observation& seen, proto::Observation* message);
// Leaves out values that an observation cannot have, such as an unknown class or bucket, or a
// device that does not exist.
Observation FromMessage(const proto::Observation& message);

}  // namespace detshare
