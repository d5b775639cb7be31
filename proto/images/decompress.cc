#include "proto/images/decompress.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <climits>
#include <memory>

namespace detshare::images {
namespace {

// One compressed byte gives at most 255 bytes, as a byte of an LZ4 match length does.
constexpr uint64_t kLz4LargestRatio = 255;
constexpr size_t kZstdPiece = 1 << 20;

bool Fail(std::string* error, const char* reason) {
  *error = reason;
  return false;
}

}  // namespace

bool DecompressZstd(std::span<const std::byte> compressed, uint64_t bytes, std::string* out,
                    std::string* error) {
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(),
                                                                          &ZSTD_freeDStream);
  if (stream == nullptr) return Fail(error, "no memory to decompress");
  // Limits the window that a frame makes the decoder allocate.
  ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax, 27);

  out->clear();
  ZSTD_inBuffer input{compressed.data(), compressed.size(), 0};
  while (true) {
    // One byte more than expected, to detect a longer frame.
    const size_t room =
        static_cast<size_t>(std::min<uint64_t>(bytes - out->size(), kZstdPiece)) + 1;
    const size_t filled = out->size();
    out->resize(filled + room);
    ZSTD_outBuffer output{out->data() + filled, room, 0};
    const size_t left = ZSTD_decompressStream(stream.get(), &output, &input);
    out->resize(filled + output.pos);
    if (ZSTD_isError(left)) return Fail(error, "the zstd data are damaged");
    if (out->size() > bytes) return Fail(error, "the zstd data are longer than announced");
    if (left == 0) break;  // the end of the frame; padding follows
    if (output.pos < room && input.pos == input.size)
      return Fail(error, "the zstd data are cut off");
  }
  if (out->size() != bytes) return Fail(error, "the zstd data are shorter than announced");
  return true;
}

bool DecompressLz4Block(std::span<const std::byte> compressed, uint64_t bytes, std::string* out,
                        std::string* error) {
  if (compressed.size() > INT_MAX || bytes > INT_MAX)
    return Fail(error, "the LZ4 data are too large");
  if (bytes > compressed.size() * kLz4LargestRatio)
    return Fail(error, "the LZ4 data are shorter than announced");
  out->resize(bytes);
  const int written =
      LZ4_decompress_safe(reinterpret_cast<const char*>(compressed.data()), out->data(),
                          static_cast<int>(compressed.size()), static_cast<int>(bytes));
  if (written < 0) return Fail(error, "the LZ4 data are damaged");
  if (static_cast<uint64_t>(written) != bytes)
    return Fail(error, "the LZ4 data are shorter than announced");
  return true;
}

}  // namespace detshare::images
