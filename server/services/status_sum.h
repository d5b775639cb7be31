// Adds up the status of several engines of one daemon.
#pragma once

#include "proto/admin.pb.h"

namespace detshare {

// Adds an engine's status to `all`: its sessions, what its tenants use, and the sessions in each
// partition. All engines describe the same devices.
void AddStatus(const proto::Status& other, proto::Status* all);

}  // namespace detshare
