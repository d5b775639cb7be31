#include "server/backends/cuda/uvm_advice.h"

#include <sys/ioctl.h>

#include <cstring>

namespace detshare::cuda {
namespace {

constexpr uint64_t kPage = 4096;

// UVM_SET_PREFERRED_LOCATION and the five after it
enum Request : unsigned long {
  kSetPreferredLocation = 42,
  kUnsetPreferredLocation = 43,
  kEnableReadDuplication = 44,
  kDisableReadDuplication = 45,
  kSetAccessedBy = 46,
  kUnsetAccessedBy = 47,
};

// Not a status (NV_STATUS) of the module.
constexpr uint32_t kNoStatus = ~0u;
constexpr uint32_t kNoMemory = 0x51;  // NV_ERR_NO_MEMORY
constexpr uint32_t kAnyNode = ~0u;    // NUMA_NO_NODE

struct Processor {
  unsigned char uuid[16];
};
// NV_PROCESSOR_UUID_CPU_DEFAULT
constexpr Processor kCpu{{0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c,
                          0x14, 0x2a, 0x77, 0x73}};

struct Range {
  uint64_t base, length;
};
struct RangeParameters {
  Range range;
  uint32_t status = kNoStatus;
};
struct AccessParameters {
  Range range;
  Processor processor;
  uint32_t status = kNoStatus;
};
struct LocationParameters {
  Range range;
  Processor processor;
  uint32_t node = kAnyNode;
  uint32_t status = kNoStatus;
};

CUresult ResultOf(uint32_t status) {
  if (status == 0) return CUDA_SUCCESS;
  return status == kNoMemory ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
}

template <typename Parameters>
CUresult Ask(int descriptor, Request request, Parameters parameters) {
  if (ioctl(descriptor, static_cast<unsigned long>(request), &parameters) != 0)
    return CUDA_ERROR_OPERATING_SYSTEM;
  return ResultOf(parameters.status);
}

}  // namespace

CUresult AdviseManaged(int descriptor, uint64_t address, uint64_t bytes, CUmem_advise advice,
                       const CUuuid* gpu) {
  const uint64_t begin = address / kPage * kPage;
  const uint64_t end = (address + bytes + kPage - 1) / kPage * kPage;
  const Range range{begin, end - begin};
  Processor place = kCpu;
  if (gpu != nullptr) std::memcpy(place.uuid, gpu->bytes, sizeof(place.uuid));
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
      return Ask(descriptor, kEnableReadDuplication, RangeParameters{range});
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      return Ask(descriptor, kDisableReadDuplication, RangeParameters{range});
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      return Ask(descriptor, kSetPreferredLocation, LocationParameters{range, place});
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      return Ask(descriptor, kUnsetPreferredLocation, RangeParameters{range});
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
      return Ask(descriptor, kSetAccessedBy, AccessParameters{range, place});
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      return Ask(descriptor, kUnsetAccessedBy, AccessParameters{range, place});
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace detshare::cuda
