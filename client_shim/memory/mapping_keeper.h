// Keeps the memory of this process for a moment after its end.
//
// Pages that move between CPU and GPU belong to this process's mappings. When the process is killed,
// its kernels still run for a moment. A kernel that then touches a page of a mapping that is gone has a
// fault, which ends all programs that share its engine. So a second process shares this one's memory
// and sleeps until the daemon has no work of the session any more.
//
// The second process runs no code of the program. It has no descriptors but its connection, ignores
// all signals, and belongs to a session of its own. A wait for any child does not see it.
#pragma once

namespace detshare::shim {

// Starts the process, which ends when the connection is closed, at either end. Returns false if it
// cannot be started.
bool StartMappingKeeper(int connection);

// Closes the connection of the process that was started, and waits for the end of that process. Only
// the process that has started it may call this.
void EndMappingKeeper(int connection);

}  // namespace detshare::shim
