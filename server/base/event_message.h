// Events as messages of proto/admin.proto.
#pragma once

#include "proto/admin.pb.h"
#include "server/base/event_log.h"

namespace detshare {

proto::Event ToMessage(const DaemonEvent& event);
// An unknown kind becomes kStarted. EventLog::Add() sets number and time.
DaemonEvent FromMessage(const proto::Event& message);

}  // namespace detshare
