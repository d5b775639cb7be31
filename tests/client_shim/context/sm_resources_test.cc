#include "client_shim/context/sm_resources.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

namespace detshare::shim {
namespace {

// An H200: eight GPCs of 8 to 18 SMs, and four pairs of SMs that belong to no GPC.
SmTopology H200() {
  SmTopology topology{0, 132, 9, {}};
  for (int tpc = 0; tpc < 66; ++tpc) {
    int gpc;
    if (tpc < 32) {
      gpc = tpc % 8;
    } else if (tpc < 60) {
      gpc = 1 + (tpc - 32) % 7;
    } else if (tpc < 62) {
      gpc = 6 + (tpc - 60);
    } else {
      gpc = 0x0b + 3 * (tpc - 62);
    }
    topology.gpc_of_tpc.push_back(static_cast<char>(gpc));
  }
  return topology;
}

struct Split {
  CUresult result;
  std::vector<CUdevResource> groups;
  CUdevResource remaining;
};

Split SplitBy(const SmTopology& topology, unsigned least, unsigned flags = 0, unsigned max = 1000) {
  Split split;
  split.groups.resize(std::max(max, 1u));
  unsigned count = max;
  split.result = SplitSms(topology, WholeDevice(topology), flags, least, split.groups.data(),
                          &count, &split.remaining);
  split.groups.resize(split.result == CUDA_SUCCESS ? count : 0);
  return split;
}

TEST_CASE("An H200 is divided into 15 groups of 8 SMs and 12 are left over") {
  const Split split = SplitBy(H200(), 8);
  REQUIRE(split.groups.size() == 15);
  for (const CUdevResource& group : split.groups) {
    CHECK(group.type == CU_DEV_RESOURCE_TYPE_SM);
    CHECK(group.sm.smCount == 8);
  }
  CHECK(split.remaining.sm.smCount == 12);
  // A smaller number is rounded up.
  CHECK(SplitBy(H200(), 3).groups.size() == 15);
  CHECK(SplitBy(H200(), 0).groups.size() == 15);
}

TEST_CASE("Without coscheduling an H200 is divided into 66 groups of 2") {
  const Split split = SplitBy(H200(), 2, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING);
  CHECK(split.groups.size() == 66);
  CHECK(split.remaining.type == CU_DEV_RESOURCE_TYPE_INVALID);
}

TEST_CASE("Fewer groups than are possible leave the rest over") {
  const Split split = SplitBy(H200(), 16, 0, 2);
  REQUIRE(split.groups.size() == 2);
  CHECK(split.groups[1].sm.smCount == 16);
  CHECK(split.remaining.sm.smCount == 100);
}

TEST_CASE("The granularity is told for a device and not for what a split makes") {
  const SmTopology topology = H200();
  const CUdevResource whole = MakeResource(topology, WholeDevice(topology));
  CHECK(whole.sm.minSmPartitionSize == 8);
  CHECK(whole.sm.smCoscheduledAlignment == 8);
  const Split split = SplitBy(topology, 16, 0, 2);
  REQUIRE(split.groups.size() == 2);
  for (const CUdevResource& part : {split.groups[0], split.groups[1], split.remaining}) {
    CHECK(part.sm.minSmPartitionSize == 0);
    CHECK(part.sm.smCoscheduledAlignment == 0);
  }
}

TEST_CASE("The number of groups can be asked for without making them") {
  const SmTopology topology = H200();
  unsigned count = 0;
  CHECK(SplitSms(topology, WholeDevice(topology), 0, 64, nullptr, &count, nullptr) == CUDA_SUCCESS);
  CHECK(count == 2);
}

TEST_CASE("Groups of more than 8 SMs may use the SMs of several GPCs") {
  CHECK(SplitBy(H200(), 9).groups.size() == 8);
  CHECK(SplitBy(H200(), 9).remaining.sm.smCount == 4);
  CHECK(SplitBy(H200(), 32).groups.size() == 4);
  CHECK(SplitBy(H200(), 64).groups.size() == 2);
}

TEST_CASE("All SMs can be one group, although their number is no multiple of 8") {
  const Split split = SplitBy(H200(), 132);
  REQUIRE(split.groups.size() == 1);
  CHECK(split.groups[0].sm.smCount == 132);
  CHECK(split.remaining.type == CU_DEV_RESOURCE_TYPE_INVALID);
}

TEST_CASE("Groups for the largest clusters have the usual sizes on an H200") {
  constexpr unsigned kClusters = CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
  CHECK(SplitBy(H200(), 1, kClusters).groups.size() == 15);
  CHECK(SplitBy(H200(), 9, kClusters).groups.size() == 8);
}

TEST_CASE("More SMs than there are, no groups, and flags that exclude each other are refused") {
  CHECK(SplitBy(H200(), 133).result == CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  CHECK(SplitBy(H200(), 8, 0, 0).result == CUDA_ERROR_INVALID_VALUE);
  CHECK(SplitBy(H200(), 8, 3).result == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("Unknown flags are ignored") {
  CHECK(SplitBy(H200(), 8, 4).groups.size() == 15);
  CHECK(SplitBy(H200(), 8, 0x80000001).groups.size() == 16);
}

TEST_CASE("A resource that a split made is not split again") {
  const SmTopology topology = H200();
  SmSet set;
  REQUIRE(ReadResource(SplitBy(topology, 64).groups[0], &set));
  unsigned count = 0;
  CHECK(SplitSms(topology, set, 0, 8, nullptr, &count, nullptr) ==
        CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
}

TEST_CASE("A resource that a program has changed is refused") {
  const SmTopology topology = H200();
  CUdevResource whole = MakeResource(topology, WholeDevice(topology));
  SmSet set;
  REQUIRE(ReadResource(whole, &set));
  whole.sm.smCount = 200;
  CHECK_FALSE(ReadResource(whole, &set));
  CHECK_FALSE(ReadResource(CUdevResource{}, &set));
}

}  // namespace
}  // namespace detshare::shim
