// Adds up the status of several processes of one daemon, with strict isolation.
#pragma once

#include "proto/admin.pb.h"

namespace detshare {

// Adds `other` to `all`: its sessions, what its tenants use, and the sessions in each partition.
// Both describe the same devices.
void AddStatus(const proto::Status& other, proto::Status* all);

}  // namespace detshare
