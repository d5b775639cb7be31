// The status of several processes of one daemon as one, with strict isolation.
#pragma once

#include "proto/admin.pb.h"

namespace detshare {

// Adds to `all` what `other` says: its sessions, what its tenants have, who is in which partition.
// Both look at the same devices.
void AddStatus(const proto::Status& other, proto::Status* all);

}  // namespace detshare
