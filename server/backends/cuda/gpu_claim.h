// Which daemon may give its work on a GPU short time slices.
//
// Ordinary groups with short slices that both have work make no progress. The processes of one daemon
// take turns (coroutine_runtime/device_turn.h), those of two daemons do not. So a daemon marks the
// GPUs on which it has short slices, and another daemon on the host leaves its own slices as they are.
//
// The mark is a lock on the GPU's device file, which all containers of a host have in common if they
// have the same file. The kernel removes it when the process ends.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace detshare::cuda {

// Any thread may use it, one at a time.
class GpuClaim {
 public:
  // Claims the GPU for the daemon `owner`, all of whose processes have the same number; 0: this process
  // is the only one. `node` is the GPU's device file. Returns Unavailable if a process of another owner
  // claims the GPU. Two owners that claim it at the same moment may both be refused. If `node` cannot be
  // opened or locked, no other daemon can be seen, and the claim is empty.
  static absl::StatusOr<GpuClaim> Take(const std::string& node, uint64_t owner);

  GpuClaim() = default;
  GpuClaim(GpuClaim&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  GpuClaim& operator=(GpuClaim&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~GpuClaim();

 private:
  int file_ = -1;
};

// Returns the device file of the GPU at a PCI address such as "0000:01:00.0", as the kernel module tells
// it in `directory`; "": it does not.
std::string DeviceNode(const std::string& pci_address,
                       const std::string& directory = "/proc/driver/nvidia/gpus");

}  // namespace detshare::cuda
