// `detsharectl status`: shows the daemon, its devices and its sessions.
#pragma once

#include <string>

#include "proto/admin.pb.h"

namespace detshare::ctl {

// Here `width` is that of text::Table::ToString().

// The status as tables.
std::string StatusText(const proto::Status& status, size_t width = 0);

// The devices of a session as positions in the status: "0", "2,0"; "-": the daemon did not say.
std::string DevicesText(const proto::SessionStatus& session);

// Where a session's work runs on its first device: "sm0-63", "urgent (bound)". A bound session
// stays in its time-slice group.
std::string PartitionText(const proto::SessionStatus& session);

// Whether some session or tenant of the reply has an owner, so that tables have a column for it.
bool AnyOwner(const proto::Status& status);

// "time-slice groups" or "none". Daemons that do not say so have none.
std::string PreemptionMode(const proto::DeviceStatus& device);

// A message for each engine that did not reply, so that `status` lacks its sessions; "" if there is
// none.
std::string SilentEnginesText(const proto::Status& status);

// The status as one JSON object, with the field names of proto/admin.proto and numbers as numbers.
std::string StatusJson(const proto::Status& status);

}  // namespace detshare::ctl
