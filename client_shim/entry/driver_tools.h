// NVIDIA's tools that look into the driver: CUPTI, and with it the profilers of frameworks, Nsight
// Compute, Nsight Systems and compute-sanitizer. They need private tables that only the driver has.
#pragma once

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// Whether this is the table for which such a tool asks first. It was seen to be asked for by CUPTI,
// Nsight Compute and compute-sanitizer of CUDA 13.0.
bool IsToolsTable(const CUuuid& id);

// Says on stderr, once for a process, that the tool sees nothing here, and what to do instead. Ends
// the process with status 1 if compute-sanitizer asked, because it would crash without the table.
void RefuseTool();

}  // namespace detshare::shim
