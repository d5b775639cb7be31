#include "client_shim/context/sm_resources.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace detshare::shim {
namespace {

constexpr uint32_t kMagic = 0x534D5331;
static_assert(sizeof(SmSet) <= sizeof(CUdevResource::_internal_padding));

// The granularity of a division: the smallest partition, and the step from size to size.
struct Grain {
  uint32_t least, step;
};

Grain GrainOf(const SmTopology& topology, unsigned int flags) {
  const bool independent = (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0;
  if (topology.compute_major >= 9) return independent ? Grain{2, 2} : Grain{8, 8};
  if (topology.compute_major == 8) return {4, 2};
  return topology.compute_major == 7 ? Grain{2, 2} : Grain{1, 1};
}

// The number of groups of `size` SMs that the set has. Groups of one step each lie within one GPC;
// larger ones may also have SMs of several GPCs, and those that belong to none.
uint32_t GroupsOf(const SmTopology& topology, const SmSet& input, uint32_t size, uint32_t step) {
  if (size > step || step <= 2 || topology.gpc_of_tpc.empty() || input.count != topology.sm_count) {
    return input.count / size;
  }
  std::array<uint32_t, 256> sms{};
  for (const char gpc : topology.gpc_of_tpc) sms[static_cast<uint8_t>(gpc)] += 2;
  uint32_t groups = 0;
  for (const uint32_t count : sms) groups += count / step;
  return groups;
}

}  // namespace

CUdevResource MakeResource(const SmTopology& topology, const SmSet& set) {
  CUdevResource resource;
  memset(&resource, 0, sizeof(resource));
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  memcpy(resource._internal_padding, &set, sizeof(set));
  const Grain grain =
      GrainOf(topology, set.group <= 2 ? CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING : 0);
  resource.sm.smCount = set.count;
  resource.sm.minSmPartitionSize = grain.least;
  resource.sm.smCoscheduledAlignment = set.group;
  return resource;
}

SmSet WholeDevice(const SmTopology& topology) {
  return {kMagic, topology.device, 0, topology.sm_count, 0, GrainOf(topology, 0).step};
}

bool ReadResource(const CUdevResource& resource, SmSet* set) {
  if (resource.type != CU_DEV_RESOURCE_TYPE_SM) return false;
  memcpy(set, resource._internal_padding, sizeof(*set));
  return set->magic == kMagic && set->count == resource.sm.smCount;
}

CUresult SplitSms(const SmTopology& topology, const SmSet& input, unsigned int flags,
                  unsigned int least, CUdevResource* result, unsigned int* groups,
                  CUdevResource* remaining) {
  static std::atomic<uint32_t> next_split{1};
  // The driver ignores flags that it does not know. The two that it knows exclude each other.
  constexpr unsigned int kKnown = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                                  CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
  if ((flags & kKnown) == kKnown) return CUDA_ERROR_INVALID_VALUE;
  if (result != nullptr && *groups == 0) return CUDA_ERROR_INVALID_VALUE;
  if (least > input.count) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  // A set that a split made can only be split again through a green context.
  if (input.split != 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  const Grain grain = GrainOf(topology, flags);
  uint32_t size = std::max<uint32_t>(least, grain.least);
  size = std::min((size + grain.step - 1) / grain.step * grain.step, input.count);
  const uint32_t possible = GroupsOf(topology, input, size, grain.step);
  if (result == nullptr) {
    *groups = possible;
    return CUDA_SUCCESS;
  }
  const uint32_t made = std::min<uint32_t>(*groups, possible);
  const uint32_t split = next_split.fetch_add(1, std::memory_order_relaxed);
  // Driver 580 does not tell the granularity of what a split makes.
  const auto part = [&topology](const SmSet& set) {
    CUdevResource resource = MakeResource(topology, set);
    resource.sm.minSmPartitionSize = resource.sm.smCoscheduledAlignment = 0;
    return resource;
  };
  for (uint32_t i = 0; i < made; ++i)
    result[i] = part({kMagic, input.device, input.first + i * size, size, split, grain.step});
  *groups = made;
  if (remaining == nullptr) return CUDA_SUCCESS;
  const uint32_t left = input.count - made * size;
  if (left == 0) {
    memset(remaining, 0, sizeof(*remaining));
    remaining->type = CU_DEV_RESOURCE_TYPE_INVALID;
    return CUDA_SUCCESS;
  }
  *remaining = part({kMagic, input.device, input.first + made * size, left, split, 2});
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim
