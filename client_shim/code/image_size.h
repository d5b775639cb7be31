// Finds the length of a module image that a program names only by its address.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

using ImagePieces = std::vector<std::span<const std::byte>>;

// An image is at most this long.
inline constexpr uint64_t kMaxImageBytes = uint64_t{1} << 31;
// Zero bytes between the pieces of an image make each piece begin at a multiple of this.
inline constexpr size_t kImagePieceAlignment = 8;

// Finds the bytes of the image at `image` (not null) in the program's memory: an ELF cubin, a PTX
// text without its terminator, a fatbin, or, for a wrapper, the fatbins that it names. Reads no
// more than the headers announce. CUDA_ERROR_INVALID_IMAGE: anything else.
CUresult MeasureImage(const void* image, ImagePieces* pieces);

// The same for an image of known length, such as a file. A wrapper is not an image here.
CUresult CheckImage(std::span<const std::byte> image, ImagePieces* pieces);

}  // namespace detshare::shim
