// Prepares images with managed variables. The driver would place these variables where only the
// daemon's process sees them. So this code gives them their addresses, as a loader does
// (managed_elf.h), and the driver loads machine code without managed variables.
//
// PTX is compiled first. From a fatbin, only the code that the driver would choose is loaded.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/managed_variables.h"
#include "server/backends/cuda/cuda_address_space.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/images/device_code.h"

namespace detshare::cuda {

class ManagedScan {
 public:
  // Adds a code of the image, from images::ForEachDeviceCode(). Keeps a copy only of the code of a
  // fatbin that the driver would choose, and only if that may have managed variables or may be
  // linked; most code is neither.
  void Add(const images::DeviceCode& code);

  // Returns the code to load in place of the image; nothing if there are no managed variables.
  // Returns CUDA_ERROR_NOT_SUPPORTED if they cannot be placed. May compile, and so may wait for an
  // idle moment of the device.
  absl::StatusOr<std::optional<std::string>> Place(CudaContext& context, CudaAddressSpace& space,
                                                   absl::Span<const JitOptionValue> options,
                                                   CompileLogs& logs, const PlaceManaged& place);

 private:
  struct Code {
    images::EntryKind kind = images::EntryKind::kPtx;
    uint32_t sm = 0;
    bool specific = false;  // runs only on exactly this architecture
    bool managed = false;
    std::string bytes;
  };

  std::map<size_t, Code> best_;  // of each fatbin; the image itself counts as one
  bool any_ = false;             // some code has managed variables
};

}  // namespace detshare::cuda
