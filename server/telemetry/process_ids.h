// Process ids as another process knows them.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace detshare {

// Translates the daemon's process ids for one viewer. A viewer in a pid namespace of its own (a
// container) is told only of processes of that same namespace, by their ids there.
class ProcessIds {
 public:
  // `viewer`: as the daemon sees it; 0 when it does not.
  explicit ProcessIds(pid_t viewer);
  // 0 when the viewer has no name for the process, or it is gone.
  uint32_t OfViewer(pid_t process) const;

 private:
  int depth_ = 0;           // of the viewer's namespace under the daemon's; -1: unknown
  uint64_t namespace_ = 0;  // its inode, when depth_ > 0
};

}  // namespace detshare
