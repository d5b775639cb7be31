// How many CPUs this thread may keep busy.
#pragma once

#include <string_view>

namespace detshare::shim {

// The CPUs that `cpu.max` of a control group ("QUOTA PERIOD" or "max PERIOD", in microseconds)
// allows at a time, rounded up. 0: no limit, or not understood.
int CpusOfQuota(std::string_view cpu_max);

// The least of what the thread's affinity and the quotas of its control group and of those above it
// allow, at least 1. Reads files: not for every call.
int UsableCpus();

}  // namespace detshare::shim
