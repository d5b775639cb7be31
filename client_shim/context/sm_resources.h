// SM resources, as cuDeviceGetDevResource and cuDevSmResourceSplitByCount describe them. What a
// program sees is the split that the driver would make of the whole device; where its work runs is
// the daemon's decision.
#pragma once

#include <cstdint>
#include <string>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// What decides how SMs are grouped.
struct SmTopology {
  uint16_t device = 0;
  uint32_t sm_count = 0;
  int compute_major = 0;
  std::string gpc_of_tpc;  // one byte a pair of SMs; empty: not known
};

// What a CUdevResource of type SM holds, out of programs' sight.
struct SmSet {
  uint32_t magic = 0;
  uint32_t device = 0;
  uint32_t first = 0, count = 0;  // numbers within what was split; sets of one split do not overlap
  uint32_t split = 0;             // the split that made it, 0: none
  uint32_t group = 0;             // SMs of it are multiples of this on one GPC
};

CUdevResource MakeResource(const SmTopology& topology, const SmSet& set);
SmSet WholeDevice(const SmTopology& topology);
// False unless this library made the resource.
bool ReadResource(const CUdevResource& resource, SmSet* set);

// cuDevSmResourceSplitByCount; `topology` is that of the input's device.
CUresult SplitSms(const SmTopology& topology, const SmSet& input, unsigned int flags,
                  unsigned int least, CUdevResource* result, unsigned int* groups,
                  CUdevResource* remaining);

}  // namespace detshare::shim
