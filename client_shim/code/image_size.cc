#include "client_shim/code/image_size.h"

#include <algorithm>
#include <cstring>

#include "proto/images/fatbin_wrapper.h"
#include "proto/images/image_kind.h"

namespace detshare::shim {
namespace {

constexpr size_t kElfHeaderBytes = 64;

// Compares byte by byte, so that it does not read past the end of a text shorter than `magic`.
bool StartsWith(const std::byte* image, const char* magic, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (image[i] != static_cast<std::byte>(magic[i])) return false;
  }
  return true;
}

// The end of what an ELF file's own tables describe. Sections that may have no bytes in the file
// are not counted: SHT_NOBITS and the processor's own kinds. In a cubin all sections lie before the
// section headers.
uint64_t EndOfElf(const std::byte* image) {
  const std::optional<images::CubinInfo> info = images::ReadCubinHeader({image, kElfHeaderBytes});
  return info.has_value() && info->bytes < kMaxImageBytes ? info->bytes : 0;
}

CUresult One(std::span<const std::byte> piece, ImagePieces* pieces) {
  if (piece.empty() || piece.size() >= kMaxImageBytes) return CUDA_ERROR_INVALID_IMAGE;
  pieces->push_back(piece);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult MeasureImage(const void* image, ImagePieces* pieces) {
  pieces->clear();
  const auto* bytes = static_cast<const std::byte*>(image);
  if (StartsWith(bytes,
                 "\x7f"
                 "ELF",
                 4))
    return One({bytes, EndOfElf(bytes)}, pieces);
  if (StartsWith(bytes, "\x50\xED\x55\xBA", 4)) return One(images::FatbinBytes(image), pieces);
  if (StartsWith(bytes, "\xB1\x43\x62\x46", 4)) {
    for (const std::span<const std::byte> fatbin : images::WrappedFatbins(image)) {
      if (const CUresult result = One(fatbin, pieces); result != CUDA_SUCCESS) return result;
    }
    return pieces->empty() ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
  }
  const std::span<const std::byte> text{bytes,
                                        strnlen(static_cast<const char*>(image), kMaxImageBytes)};
  if (images::SniffImage(text) != images::ImageKind::kPtx) return CUDA_ERROR_INVALID_IMAGE;
  return One(text, pieces);
}

CUresult CheckImage(std::span<const std::byte> image, ImagePieces* pieces) {
  pieces->clear();
  switch (images::SniffImage(image)) {
    case images::ImageKind::kElf:
      if (!images::ReadCubinHeader(image).has_value()) return CUDA_ERROR_INVALID_IMAGE;
      return One(image, pieces);
    case images::ImageKind::kFatbin:
      return One(image, pieces);
    case images::ImageKind::kPtx:
      // The text is stored with its terminator.
      return One(image.first(strnlen(reinterpret_cast<const char*>(image.data()), image.size())),
                 pieces);
    default:
      return CUDA_ERROR_INVALID_IMAGE;
  }
}

}  // namespace detshare::shim
