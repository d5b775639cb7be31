// Clean-up of what the program has destroyed. It may wait for locks and for room in the ring, so a
// thread of its own does it. The thread of host functions must wait for neither: the daemon may wait
// for a function.
#pragma once

#include <functional>

namespace detshare::shim {

// Calls and destroys `task` on the thread of clean-up, after the tasks that were added before. If
// that thread cannot be started, the task stays until a later call can start it. Any thread.
void CleanUpLater(std::function<void()> task);

}  // namespace detshare::shim
