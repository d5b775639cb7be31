// Keeps libcuda from making others wait when a kernel of this process has trapped.
//
// After an exception of a kernel, libcuda reads the error states of all SMs, in some calls that are short, and
// clears them, in as many calls that are long: 36 ms each on an idle H200, and up to 200 ms each beside other
// work, nine calls in all (driver 580). The kernel module does nothing else for any process meanwhile, and
// often the GPU does nothing either. The context has been lost by then and its process ends soon, so nobody
// needs the cleared states; a process that gets SIGKILL after the exception does not clear them either.
#pragma once

namespace detshare::cuda {

// For kernel_calls.cc, which sees libcuda's calls before the kernel does. Returns whether the call clears error
// states of SMs. The call then has succeeded, and need not be made.
bool SkipClearOfErrorStates(unsigned long request, void* argument);

}  // namespace detshare::cuda
