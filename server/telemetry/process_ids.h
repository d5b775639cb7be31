// Translates process ids between pid namespaces.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace detshare {

// Translates the daemon's process ids for one viewer. A viewer in a pid namespace of its own (a
// container) sees only processes of that namespace, by their ids there.
class ProcessIds {
 public:
  // `viewer` is the viewer's id as the daemon sees it; 0 if the daemon sees none. A namespace is
  // Peer::pid_namespace.
  ProcessIds(pid_t viewer, uint64_t viewer_namespace);
  // Returns the process's id for the viewer; 0 if the viewer cannot see the process, or it is gone.
  uint32_t OfViewer(pid_t process, uint64_t process_namespace) const;

 private:
  int depth_ = 0;  // depth of the viewer's namespace below the daemon's; -1: unknown
  const uint64_t namespace_;
};

}  // namespace detshare
