// `detsharectl top`: shows how much each session uses the devices at this moment.
#pragma once

#include <cstdint>
#include <string>

#include "proto/admin.pb.h"

namespace detshare::ctl {

// Where a text is shown.
struct Screen {
  size_t width = 0;   // that of text::Table::ToString()
  size_t height = 0;  // the largest number of lines; 0: any
  bool colour = false;
};

// Describes what happened between two states of the daemon that lie `interval_ns` apart, with one
// line for each session. A session that `before` does not have counts from its beginning. `sort` is
// that of TopOptions. In colour, the header is bold, what is wrong is red, and sessions that were
// throttled for most of the time are yellow. Sessions for which there is no room are counted.
std::string TopText(const proto::Status& before, const proto::Status& after, int64_t interval_ns,
                    const std::string& sort, const Screen& screen = {});
std::string TopJson(const proto::Status& before, const proto::Status& after, int64_t interval_ns,
                    const std::string& sort);

struct TopOptions {
  std::string socket;
  std::string sort = "gpu";  // the sessions with most GPU time first; memory, operations or rank
  double seconds = 2;        // between two readings of the daemon's state
  bool once = false;         // prints one reading, then ends
  bool json = false;
};
// Runs until it is interrupted, or until the first reading with `once`. On a terminal, each reading
// replaces the one before, and q ends it. Returns an exit code; after an error, a message is on stderr.
int Top(const TopOptions& options);

}  // namespace detshare::ctl
