// `detsharectl events`: prints what happened to sessions and settings lately, and follows what
// happens.
#pragma once

#include <string>

#include "proto/admin.pb.h"

namespace detshare::ctl {

// The event as one line. Times are local in a text and UTC in JSON.
std::string EventText(const proto::Event& event);
std::string EventJson(const proto::Event& event);

struct EventsOptions {
  std::string socket;
  bool json = false;    // one object a line
  bool follow = false;  // goes on until interrupted
  int count = 100;      // prints at most this many past events
  // Prints only the events of this session, tenant and kind; 0 and "": of all.
  uint64_t session = 0;
  std::string tenant, kind;
};
// Whether the event is of the session, tenant and kind of the options.
bool Wanted(const proto::Event& event, const EventsOptions& options);

// Returns an exit code; after an error, a message is on stderr.
int Events(const EventsOptions& options);

}  // namespace detshare::ctl
