// Images with managed variables. The driver would place these where only the daemon's process sees
// them; so they get their addresses here, as a loader gives them (managed_elf.h), and the driver
// loads machine code that has none.
//
// PTX is compiled first. Of a fatbin the code that the driver would choose is taken alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

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
  // A code of the image, from images::ForEachDeviceCode. Keeps a copy where it may have managed
  // variables, which few have.
  void Add(const images::DeviceCode& code);

  // What to load in the place of the image: nothing when there are no managed variables.
  // CUDA_ERROR_NOT_SUPPORTED when they cannot be placed. Compiles, and so may wait for an idle
  // moment of the device.
  absl::StatusOr<std::optional<std::string>> Place(CudaContext& context, CudaAddressSpace& space,
                                                   absl::Span<const JitOptionValue> options,
                                                   CompileLogs& logs, const PlaceManaged& place);

 private:
  struct Code {
    images::EntryKind kind = images::EntryKind::kPtx;
    size_t fatbin = 0;
    uint32_t sm = 0;
    bool specific = false;  // for exactly this architecture
    bool managed = false;
    std::string bytes;
  };

  std::vector<Code> codes_;
  bool any_ = false;  // some code has managed variables
};

}  // namespace detshare::cuda
