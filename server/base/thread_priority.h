// Threads for whose answers clients wait, on hosts whose CPUs are all busy.
//
// Such a thread uses little CPU time, but the kernel lets it wait for a turn of the thread that has
// the CPU, for milliseconds. Natively the program's own thread does the work, and it has a CPU. So
// these threads get a nice value at which the kernel lets them run almost at once when they wake.
#pragma once

namespace detshare {

// Lets threads of this process, and of processes that it starts, call PreferCallingThread() also
// after they have given up CAP_SYS_NICE. Has no effect where this process has neither that
// capability nor a limit that allows it (LimitNICE= of systemd).
void AllowPreferredThreads();

// Lets the calling thread run before threads of ordinary priority. Has no effect where the process
// may not.
void PreferCallingThread();

}  // namespace detshare
