// Whether other processes can see this process's device memory. Any thread.
#pragma once

namespace detshare::shim {

// Called before the process gives a handle of memory away or opens one.
void NoteSharedMemory();
// Whether NoteSharedMemory() was called. Handles are not taken back, so this stays true.
bool SharesMemory();

}  // namespace detshare::shim
