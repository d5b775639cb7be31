// From the images that programs hand in to PTX modules.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/device.h"
#include "server/backends/soft/ptx/module.h"

namespace detshare::soft {

// The PTX texts of `image` that a device of `sm` (90 for 9.0) runs, to be linked with each other.
// Of a fatbin: those of the highest architecture that is not above the device's; of several
// fatbins: where the first, which nvlink made, has machine code alone, those of the others, chosen
// for each. CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU.
absl::StatusOr<std::vector<std::string>> PtxOfImage(absl::Span<const std::byte> image, uint32_t sm);

// Parses and links. CUDA_ERROR_INVALID_PTX, CUDA_ERROR_NO_BINARY_FOR_GPU (PTX for newer
// architectures), CUDA_ERROR_UNSUPPORTED_PTX_VERSION.
absl::StatusOr<std::unique_ptr<ptx::Module>> CompilePtx(const std::vector<std::string>& texts,
                                                        uint32_t sm);

// As Device::Link.
absl::StatusOr<std::string> LinkImages(absl::Span<const LinkInputImage> inputs, uint32_t sm);

}  // namespace detshare::soft
