// Takes from an engine what it never needs, so that a defect in code that reads clients' images, the
// driver's for example, gives little to the program that finds it.
#pragma once

namespace detshare {

// Gives up, for this process and all that it starts: new privileges by execution, capabilities that
// are not in the table of docs/operating.md, and the system calls that no part of the daemon or of
// the driver makes (tracing, mounting, loading modules, changing the clock and so on; they fail with
// EPERM). Logs what the kernel does not offer, and goes on without it. Called before the process has
// other threads.
void DropRights();

}  // namespace detshare
