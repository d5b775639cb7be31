// `detsharectl status`: the daemon, its devices, its sessions.
#pragma once

#include <string>

#include "proto/admin.pb.h"

namespace detshare::ctl {

// For people: two tables.
std::string StatusText(const proto::Status& status);

// Which devices a session has, as positions in the status: "0", "2,0"; "-" when that was not said.
std::string DevicesText(const proto::SessionStatus& session);

// For machines: one JSON object, with the field names of proto/admin.proto and numbers as numbers.
std::string StatusJson(const proto::Status& status);

}  // namespace detshare::ctl
