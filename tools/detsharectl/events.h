// `detsharectl events`: what happened to sessions and settings lately, and what happens.
#pragma once

#include <string>

#include "proto/admin.pb.h"

namespace detshare::ctl {

// One line. Times of text are local, those of JSON are UTC.
std::string EventText(const proto::Event& event);
std::string EventJson(const proto::Event& event);

struct EventsOptions {
  std::string socket;
  bool json = false;    // one object a line
  bool follow = false;  // until it is interrupted
  int count = 100;      // of the past, at most
  // Only such; 0 and "": all.
  uint64_t session = 0;
  std::string tenant, kind;
};
bool Wanted(const proto::Event& event, const EventsOptions& options);

// An exit code, after a message.
int Events(const EventsOptions& options);

}  // namespace detshare::ctl
