#include "client_shim/transport/start_limits.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

namespace detshare::shim {
namespace {

// gRPC keeps about ten descriptors open.
constexpr int kDescriptors = 24;
// The stacks of gRPC's threads, the arenas that malloc reserves for them, and the session's file.
constexpr size_t kAddressBytes = size_t{512} << 20;

bool DescriptorsLeft() {
  int taken[kDescriptors];
  int count = 0;
  while (count < kDescriptors && (taken[count] = eventfd(0, EFD_CLOEXEC)) >= 0) ++count;
  for (int i = 0; i < count; ++i) close(taken[i]);
  return count == kDescriptors;
}

bool AddressSpaceLeft() {
  void* taken =
      mmap(nullptr, kAddressBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (taken == MAP_FAILED) return false;
  munmap(taken, kAddressBytes);
  return true;
}

}  // namespace

CUresult CheckStartLimits(const char** lacking) {
  if (!DescriptorsLeft()) {
    *lacking = "file descriptors (ulimit -n)";
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  if (!AddressSpaceLeft()) {
    *lacking = "address space (ulimit -v)";
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim
