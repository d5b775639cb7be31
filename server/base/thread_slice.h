// Threads for whose replies clients wait, on hosts whose CPUs are all busy.
//
// Such a thread works for microseconds at a time. Where a busy thread has the CPU, the kernel's
// scheduler (EEVDF) lets a thread that wakes wait for milliseconds. Natively the program's own thread
// does the work, and it has a CPU. Linux 6.12 lets a waking thread take the CPU at once if the thread
// asks for shorter slices than the thread that runs. This needs no right: the share of the CPU stays
// the same.
#pragma once

namespace detshare {

// Lets the calling thread run in the shortest slices that the kernel has, 0.1 ms. Has no effect
// before Linux 6.12.
void UseShortestSlice();

}  // namespace detshare
