// Structures of calls of NVIDIA's kernel module, which libcuda and the daemon make by ioctl. They are those of
// NVIDIA's open kernel modules, release 580 (src/common/sdk/nvidia/inc/nvos.h).
#pragma once

#include <sys/ioctl.h>

#include <cstdint>

namespace detshare::cuda {

inline constexpr unsigned kRmIoctlType = 'F';

// NVOS54_PARAMETERS: a control call to an object.
struct RmControl {
  static constexpr unsigned kNumber = 0x2a;
  uint32_t client, object, command, flags;
  uint64_t parameters;
  uint32_t parameter_bytes, status;
};
static_assert(sizeof(RmControl) == 32);
inline constexpr unsigned long kRmControl = _IOWR(kRmIoctlType, RmControl::kNumber, RmControl);

}  // namespace detshare::cuda
