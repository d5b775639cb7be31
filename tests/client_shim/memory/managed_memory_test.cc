#include "client_shim/memory/managed_memory.h"

#include <catch2/catch.hpp>

#include "client_shim/memory/pointer_map.h"

namespace detshare::shim {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr CUmemLocation kGpu{CU_MEM_LOCATION_TYPE_DEVICE, 0};
constexpr CUmemLocation kHost{CU_MEM_LOCATION_TYPE_HOST, 0};
constexpr CUmemLocation kNode{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
constexpr CUmemLocation kOwnNode{CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 1000};

// Each test has an address of its own, because there is one map of pointers and of advice.
void AddMemory(uint64_t address, uint64_t bytes, MemoryKind kind) {
  Allocation allocation;
  allocation.kind = kind;
  allocation.address = address;
  allocation.bytes = bytes;
  pointers().Add(allocation);
}

TEST_CASE("Advice may reach beyond managed memory to the end of its last block of 2 MiB") {
  constexpr uint64_t kAt = uint64_t{1} << 40;
  AddMemory(kAt, 3 * kMiB, MemoryKind::kManaged);
  CHECK(AdvisableBytes(kAt, kMiB) == kMiB);
  CHECK(AdvisableBytes(kAt + kMiB, 2 * kMiB) == 2 * kMiB);
  CHECK(AdvisableBytes(kAt + kMiB, 3 * kMiB) == 2 * kMiB);
  CHECK(AdvisableBytes(kAt + kMiB, 3 * kMiB + 1) == 0);
  CHECK(AdvisableBytes(kAt + kMiB, UINT64_MAX) == 0);
  CHECK(AdvisableBytes(kAt + 3 * kMiB, 1) == 0);
  CHECK(AdvisableBytes(kAt, 0) == 0);
  CHECK_FALSE(IsManagedMemory(kAt + kMiB, 3 * kMiB));
  AddMemory(kAt + 64 * kMiB, kMiB, MemoryKind::kDevice);
  CHECK(AdvisableBytes(kAt + 64 * kMiB, kMiB) == 0);
}

TEST_CASE("Advice holds for every page that the range touches") {
  constexpr uint64_t kAt = uint64_t{2} << 40;
  REQUIRE(NoteAdvice(kAt + 4097, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, kGpu) == CUDA_SUCCESS);
  CHECK(AdviceOf(kAt + 4096, 8192).read_mostly);
  CHECK_FALSE(AdviceOf(kAt + 4095, 8192).read_mostly);
  CHECK_FALSE(AdviceOf(kAt + 4096, 8193).read_mostly);
}

TEST_CASE("Prefetches to the host and to a node of it are prefetches to several places") {
  constexpr uint64_t kAt = uint64_t{3} << 40;
  NotePrefetch(kAt, 4096, kHost);
  NotePrefetch(kAt + 4096, 4096, kNode);
  NotePrefetch(kAt + 8192, 4096, kGpu);
  CHECK(AdviceOf(kAt, 4096).prefetched.type == CU_MEM_LOCATION_TYPE_HOST);
  CHECK(AdviceOf(kAt, 4096).prefetched.id == CU_DEVICE_CPU);
  CHECK(AdviceOf(kAt + 4096, 4096).prefetched.type == CU_MEM_LOCATION_TYPE_HOST_NUMA);
  CHECK(AdviceOf(kAt + 4096, 4096).prefetched.id == 0);
  CHECK(AdviceOf(kAt, 8192).prefetched.type == CU_MEM_LOCATION_TYPE_INVALID);
  CHECK(AdviceOf(kAt, 8192).prefetched_number == CU_DEVICE_INVALID);
  CHECK(AdviceOf(kAt + 4096, 4096).prefetched_number == CU_DEVICE_CPU);
  CHECK(AdviceOf(kAt + 8192, 4096).prefetched_number == 0);
  CHECK(AdviceOf(kAt, 12288).prefetched_number == CU_DEVICE_INVALID);
}

TEST_CASE("The node of the calling thread is not remembered") {
  constexpr uint64_t kAt = uint64_t{4} << 40;
  NotePrefetch(kAt, 4096, kGpu);
  NotePrefetch(kAt, 4096, kOwnNode);
  CHECK(AdviceOf(kAt, 4096).prefetched.type == CU_MEM_LOCATION_TYPE_INVALID);
  CHECK(AdviceOf(kAt, 4096).prefetched.id == CU_DEVICE_INVALID);
  CHECK(AdviceOf(kAt, 4096).prefetched_number == CU_DEVICE_INVALID);
  REQUIRE(NoteAdvice(kAt, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kGpu) == CUDA_SUCCESS);
  CHECK(AdviceOf(kAt, 4096).preferred_number == 0);
  REQUIRE(NoteAdvice(kAt, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kOwnNode) == CUDA_SUCCESS);
  CHECK(AdviceOf(kAt, 4096).preferred_number == CU_DEVICE_INVALID);
  CHECK(AdviceOf(kAt, 4096).preferred.type == CU_MEM_LOCATION_TYPE_INVALID);
}

}  // namespace
}  // namespace detshare::shim
