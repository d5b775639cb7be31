// How long a module image is that a program names by its address alone.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

using ImagePieces = std::vector<std::span<const std::byte>>;

// No image is longer.
inline constexpr uint64_t kMaxImageBytes = uint64_t{1} << 31;
// What lies between the pieces of an image: as many zero bytes as make each piece a multiple of it.
inline constexpr size_t kImagePieceAlignment = 8;

// The bytes that the image at `image` (not null) consists of, in the program's memory: an ELF
// cubin, a PTX text without its terminator, a fatbin, or, for a wrapper, the fatbins that it names.
// Reads no more than the headers say there is. CUDA_ERROR_INVALID_IMAGE for everything else.
CUresult MeasureImage(const void* image, ImagePieces* pieces);

// The same for an image of known length, such as a file. A wrapper is no image here.
CUresult CheckImage(std::span<const std::byte> image, ImagePieces* pieces);

}  // namespace detshare::shim
