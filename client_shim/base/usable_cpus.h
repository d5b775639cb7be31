// The number of CPUs that the calling thread may keep busy.
#pragma once

#include <string_view>

namespace detshare::shim {

// The CPUs that `cpu.max` of a control group allows at a time, rounded up. The text is "QUOTA
// PERIOD" or "max PERIOD", in microseconds. 0: there is no limit, or the text is malformed.
int CpusOfQuota(std::string_view cpu_max);

// The smallest of three limits: the thread's affinity, the quota of its control group, and the
// quotas of the groups above it. At least 1. Reads files, so do not call it often.
int UsableCpus();

}  // namespace detshare::shim
