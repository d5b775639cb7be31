// `detsharectl door`: opens, closes and lists tenant endpoints, which are sockets for containers.
#pragma once

#include <string>
#include <vector>

#include "proto/door.pb.h"
#include "tools/detsharectl/settings.h"

namespace detshare::ctl {

struct DoorOptions {
  std::string socket;  // of the daemon
  bool json = false;
  std::string name;                  // of the endpoint
  std::vector<std::string> devices;  // indices or UUIDs; empty: all
  TenantFlags tenant;                // an empty name: the endpoint's name
};

// All three return an exit code. After an error, a message is on stderr. OpenDoor() prints the
// endpoint's directory, and first closes an endpoint of the same name. CloseDoor() ends the
// endpoint's sessions.
int OpenDoor(const DoorOptions& options);
int CloseDoor(const DoorOptions& options);
int PrintDoors(const DoorOptions& options);

std::string DoorsText(const proto::DoorList& doors);
std::string DoorsJson(const proto::DoorList& doors);

}  // namespace detshare::ctl
