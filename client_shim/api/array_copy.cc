// Copies between arrays and linear ranges of bytes. As natively, a range lies in the first row of an
// array (seen with driver 580).
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
  uint64_t offset = 0;   // in the array's first row
  uint64_t address = 0;  // the address in memory
  Side side = Side::kAny;
};

CUresult FindBytes(const Bytes& range, uint64_t bytes, uint16_t device, PitchedPlace* place) {
  if (range.array != nullptr) {
    place->array_handle = range.array;
    return FindArrayPlace(range.array, range.offset, 0, 0, bytes, 1, 1, device, &place->array);
  }
  place->row_pitch = place->slice_pitch = bytes;
  return FindPlace(range.address, bytes, range.side, device, &place->place);
}

CUresult Copy(const Bytes& to, const Bytes& from, uint64_t bytes, CUstream handle,
              bool synchronous) {
  Stream* stream;
  CUresult result =
      synchronous ? StreamForWork(handle, &stream) : StreamForWorkOrCapture(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  for (const Bytes* side : {&to, &from}) {
    if (side->array != nullptr && FindArray(side->array) == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
  }
  if (bytes == 0) return CUDA_SUCCESS;
  PitchedPlace destination, source;
  result = FindBytes(to, bytes, stream->device, &destination);
  if (result != CUDA_SUCCESS) return result;
  result = FindBytes(from, bytes, stream->device, &source);
  if (result != CUDA_SUCCESS) return result;
  return Capturing(*stream) ? CaptureCopy(*stream, destination, source, bytes, 1, 1)
                            : CopyPitched(*stream, destination, source, bytes, 1, 1, synchronous);
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
