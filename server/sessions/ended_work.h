// Work of sessions that have ended.
#pragma once

namespace detshare {

enum class EndedWork {
  kNone,
  kRuns,      // it may still complete
  kOutlived,  // for so long that other sessions had better use another process
};

}  // namespace detshare
