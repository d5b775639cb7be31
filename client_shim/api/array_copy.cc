// Copies between arrays and linear ranges of bytes: cuts a range into boxes of the array's rows.
#include <algorithm>

#include "client_shim/memory/arrays.h"
#include "client_shim/work/copy.h"
#include "client_shim/work/graph/capture.h"
#include "client_shim/work/graph/capture_work.h"
#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

// A range of bytes in memory or in an array.
struct Bytes {
  CUarray array = nullptr;
  uint64_t offset = 0;   // in the array
  uint64_t address = 0;  // the address in memory
  Side side = Side::kAny;
};

// The longest piece of at most `bytes` bytes from `offset` that is a box: whole rows, or a part of
// one row.
struct Piece2D {
  uint64_t width, rows;
};
Piece2D FirstPiece(uint64_t offset, uint64_t bytes, uint64_t row_bytes) {
  const uint64_t column = offset % row_bytes;
  if (column != 0 || bytes < row_bytes) return {std::min(bytes, row_bytes - column), 1};
  return {row_bytes, bytes / row_bytes};
}

CUresult FindBytes(const Bytes& from, const Piece2D& piece, uint64_t row_bytes, uint16_t device,
                   PitchedPlace* place) {
  if (from.array != nullptr) {
    place->array_handle = from.array;
    return FindArrayPlace(from.array, from.offset % row_bytes, from.offset / row_bytes, 0,
                          piece.width, piece.rows, 1, device, &place->array);
  }
  place->row_pitch = piece.width;
  place->slice_pitch = piece.width * piece.rows;
  return FindPlace(from.address, piece.width * piece.rows, from.side, device, &place->place);
}

CUresult Copy(Bytes to, Bytes from, uint64_t bytes, CUstream handle, bool synchronous) {
  Stream* stream;
  CUresult result =
      synchronous ? StreamForWork(handle, &stream) : StreamForWorkOrCapture(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  // The rows of the arrays cut the range. If both sides are arrays, the shorter piece counts.
  uint64_t to_row = 0, from_row = 0;
  for (const auto& [side, row] : {std::pair{&to, &to_row}, std::pair{&from, &from_row}}) {
    if (side->array == nullptr) continue;
    const ArrayObject* const array = FindArray(side->array);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *row = array->row_bytes();
  }
  while (bytes > 0) {
    Piece2D piece{bytes, 1};
    if (to_row != 0) piece = FirstPiece(to.offset, bytes, to_row);
    if (from_row != 0) {
      const Piece2D other = FirstPiece(from.offset, bytes, from_row);
      if (to_row == 0 || other.width < piece.width) piece = other;
      if (to_row != 0 && to_row != from_row) piece.rows = 1;
      if (to_row != 0) piece.rows = std::min(piece.rows, other.rows);
    }
    PitchedPlace destination, source;
    result = FindBytes(to, piece, to_row, stream->device, &destination);
    if (result != CUDA_SUCCESS) return result;
    result = FindBytes(from, piece, from_row, stream->device, &source);
    if (result != CUDA_SUCCESS) return result;
    result =
        Capturing(*stream)
            ? CaptureCopy(*stream, destination, source, piece.width, piece.rows, 1)
            : CopyPitched(*stream, destination, source, piece.width, piece.rows, 1, synchronous);
    if (result != CUDA_SUCCESS) return result;
    const uint64_t done = piece.width * piece.rows;
    for (Bytes* side : {&to, &from})
      (side->array != nullptr ? side->offset : side->address) += done;
    bytes -= done;
  }
  return CUDA_SUCCESS;
}

Bytes In(CUarray array, size_t offset) { return {array, offset, 0, Side::kAny}; }
Bytes At(uint64_t address, Side side) { return {nullptr, 0, address, side}; }

}  // namespace

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                         size_t ByteCount) {
  return Copy(In(dstArray, dstOffset), At(srcDevice, Side::kDevice), ByteCount, kDefaultStream,
              true);
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return Copy(At(dstDevice, Side::kDevice), In(srcArray, srcOffset), ByteCount, kDefaultStream,
              true);
}
CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                         size_t ByteCount) {
  return Copy(In(dstArray, dstOffset), At(AddressOf(srcHost), Side::kAny), ByteCount,
              kDefaultStream, true);
}
CUresult cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  return Copy(At(AddressOf(dstHost), Side::kAny), In(srcArray, srcOffset), ByteCount,
              kDefaultStream, true);
}
CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return Copy(In(dstArray, dstOffset), In(srcArray, srcOffset), ByteCount, kDefaultStream, true);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                              size_t ByteCount, CUstream hStream) {
  return Copy(In(dstArray, dstOffset), At(AddressOf(srcHost), Side::kAny), ByteCount, hStream,
              false);
}
CUresult cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
  return Copy(At(AddressOf(dstHost), Side::kAny), In(srcArray, srcOffset), ByteCount, hStream,
              false);
}

}  // namespace detshare::shim::api
