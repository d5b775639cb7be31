// Adds up the status of several engines of one daemon.
#pragma once

#include "proto/admin.pb.h"

namespace detshare {

// All engines of a daemon describe the same devices.

// Adds only the devices, and the backend, of an engine's status to `all`.
void AddDevices(const proto::Status& other, proto::Status* all);
// Sets what is in use of the devices in `part` to what `all` says, the sum of all engines. It has
// the same devices, or none.
void CopyUseOfDevices(const proto::Status& all, proto::Status* part);
// Adds an engine's status to `all`: its devices with the sessions in each partition, its sessions, and
// what its tenants use.
void AddStatus(const proto::Status& other, proto::Status* all);

}  // namespace detshare
