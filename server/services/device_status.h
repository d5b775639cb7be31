// Describes a device for operators.
#pragma once

#include "coroutine_runtime/device.h"
#include "proto/admin.pb.h"

namespace detshare {

// Sets what the device itself knows: all but the partitions and the programs beside the daemon's.
void DescribeDevice(Device& device, proto::DeviceStatus* status);

}  // namespace detshare
