// `detsharectl top`: who uses the devices at this moment.
#pragma once

#include <cstdint>
#include <string>

#include "proto/admin.pb.h"

namespace detshare::ctl {

// What happened between two looks at the daemon that lie `interval_ns` apart: one line a session.
// Sessions that `before` does not have count from their beginning.
std::string TopText(const proto::Status& before, const proto::Status& after, int64_t interval_ns);
std::string TopJson(const proto::Status& before, const proto::Status& after, int64_t interval_ns);

struct TopOptions {
  std::string socket;
  double seconds = 2;  // between two looks
  bool once = false;   // one line a session, then end
  bool json = false;
};
// Until it is interrupted. An exit code. On a terminal each look takes the place of the one before.
int Top(const TopOptions& options);

}  // namespace detshare::ctl
