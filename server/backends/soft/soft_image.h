// Turns the images that programs load into PTX modules.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/device.h"
#include "server/backends/soft/ptx/module.h"

namespace detshare::soft {

// Returns the PTX texts of `image` that a device of `sm` (90 for 9.0) runs. The caller links them
// with each other. A fatbin gives the texts of the highest architecture that is not above the
// device's. When an image has several fatbins, nvlink made the first one. If the first one has PTX,
// it alone is used. Otherwise each of the others gives its texts. Errors: CUDA_ERROR_INVALID_IMAGE,
// CUDA_ERROR_NO_BINARY_FOR_GPU.
absl::StatusOr<std::vector<std::string>> PtxOfImage(absl::Span<const std::byte> image, uint32_t sm);

// Returns the registers per thread of kernels, by name, as machine code in `image` says that a device
// of `sm` would run.
std::map<std::string, uint32_t> RegistersOfImage(absl::Span<const std::byte> image, uint32_t sm);

// Parses and links `texts`. Errors: CUDA_ERROR_INVALID_PTX, CUDA_ERROR_NO_BINARY_FOR_GPU (the PTX
// is for a newer architecture), CUDA_ERROR_UNSUPPORTED_PTX_VERSION.
absl::StatusOr<std::unique_ptr<ptx::Module>> CompilePtx(const std::vector<std::string>& texts,
                                                        uint32_t sm);

// Implements Device::Link.
absl::StatusOr<std::string> LinkImages(absl::Span<const LinkInputImage> inputs, uint32_t sm);

}  // namespace detshare::soft
