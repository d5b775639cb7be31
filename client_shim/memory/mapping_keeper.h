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

// Starts the process, which ends when the other end of the connection is closed. Returns false if it
// cannot be started.
bool StartMappingKeeper(int connection);

}  // namespace detshare::shim
