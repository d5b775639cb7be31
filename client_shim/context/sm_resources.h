// SM resources, as cuDeviceGetDevResource and cuDevSmResourceSplitByCount describe them. A program
// sees the split that the driver would make of the whole device. The daemon decides where the
// program's work runs.
#pragma once

#include <cstdint>
#include <string>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// The properties of a device that decide how its SMs are grouped.
struct SmTopology {
  uint16_t device = 0;
  uint32_t sm_count = 0;
  int compute_major = 0;
  std::string gpc_of_tpc;  // one byte for each pair of SMs; empty: not known
};

// The contents of a CUdevResource of type SM, which programs do not see.
struct SmSet {
  uint32_t magic = 0;
  uint32_t device = 0;
  uint32_t first = 0, count = 0;  // numbers within the set that was split; the sets of one split do
                                  // not overlap
  uint32_t split = 0;             // the split that made this set; 0: none
  uint32_t group = 0;             // the SMs of the set are multiples of this on one GPC
};

// Make the resource of a set, and the set of all SMs of a device.
CUdevResource MakeResource(const SmTopology& topology, const SmSet& set);
SmSet WholeDevice(const SmTopology& topology);
// Gets the set of a resource. Returns false unless this library made the resource.
bool ReadResource(const CUdevResource& resource, SmSet* set);

// Does what cuDevSmResourceSplitByCount does. `topology` is that of the input's device.
CUresult SplitSms(const SmTopology& topology, const SmSet& input, unsigned int flags,
                  unsigned int least, CUdevResource* result, unsigned int* groups,
                  CUdevResource* remaining);

}  // namespace detshare::shim
