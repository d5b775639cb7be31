// `detsharectl door`: sockets of their own for containers.
#pragma once

#include <string>
#include <vector>

#include "proto/door.pb.h"
#include "tools/detsharectl/settings.h"

namespace detshare::ctl {

struct DoorOptions {
  std::string socket;  // the daemon's
  bool json = false;
  std::string name;
  std::vector<std::string> devices;
  TenantFlags tenant;  // without a name: the door's
};

// Exit codes, after a message. OpenDoor() prints the door's directory.
int OpenDoor(const DoorOptions& options);
int CloseDoor(const DoorOptions& options);
int PrintDoors(const DoorOptions& options);

std::string DoorsText(const proto::DoorList& doors);
std::string DoorsJson(const proto::DoorList& doors);

}  // namespace detshare::ctl
