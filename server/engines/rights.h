// Takes from an engine what it never needs, so that a defect in code that reads clients' images, the
// driver's for example, gives little to the program that finds it.
#pragma once

#include "absl/status/status.h"
#include "server/engines/engine_users.h"

namespace detshare {

// Lets the threads of this process lower their nice values (ThreadScheduling), as far as this process
// may allow it. Called before BecomeUser() and DropRights().
void AllowPromptThreads();

// Becomes the user and the group, with no other groups and no capabilities. Memory may be locked
// without limit, as far as this process may allow it. Called by root, before the process has other
// threads. Returns PermissionDenied if this process may not do it.
absl::Status BecomeUser(const EngineUser& user);

// Gives up, for this process and all that it starts: new privileges by execution, capabilities that
// docs/operating.md does not leave to engines, and the system calls that no part of the daemon or of
// the driver makes (tracing, mounting, loading modules, changing the clock and so on; they fail with
// EPERM). CAP_SYS_NICE stays if AllowPromptThreads() could do nothing. Logs what the kernel does not
// offer, and goes on without it. Called before the process has other threads.
void DropRights();

}  // namespace detshare
