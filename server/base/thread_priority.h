// Threads for whose replies clients wait, on hosts whose CPUs are all busy.
//
// Such a thread works for microseconds at a time. Where a busy thread has the CPU, the kernel's
// scheduler (EEVDF) lets a thread that wakes wait for milliseconds. Natively the program's own thread
// does the work, and it has a CPU.
//
// Measured with two CPUs, two busy threads, and a thread that wakes for 0.1 ms every 5 ms (Linux
// 6.18): 1 % of the wake-ups take more than 5.1 ms; with the shortest slice 2.6 ms; with the nice value
// -10 as well 0.04 ms, and three of a thousand still milliseconds; with the lowest priority of SCHED_RR
// none more than 0.02 ms.
#pragma once

namespace detshare {

// Lets the calling thread run in the shortest slices that the kernel has, 0.1 ms, so that it may take
// the CPU at once when it wakes. This needs no right: the share of the CPU stays the same. Has no
// effect before Linux 6.12.
void UseShortestSlice();

// Gives the calling thread the lowest priority of SCHED_RR, or if the host does not allow that, the nice
// value -10; or makes it an ordinary thread again, with the shortest slice. Returns whether it is so.
// Raising needs CAP_SYS_NICE or AllowRaisedPriority(). A thread with the priority of SCHED_RR has to
// sleep often: no ordinary thread gets its CPU meanwhile.
bool RaisePriority(bool raised);

// Lets all threads of this process, and of processes that it starts, raise their priority, also after
// it has given up its rights (RLIMIT_RTPRIO, RLIMIT_NICE). Has no effect if the service manager allows less and the
// process has no CAP_SYS_RESOURCE.
void AllowRaisedPriority();

}  // namespace detshare
