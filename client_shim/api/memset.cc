// Memsets. All are one operation. As in CUDA, the synchronous ones wait only if they write pinned
// host memory.
#include "client_shim/transport/session.h"
#include "client_shim/work/copy.h"
#include "client_shim/work/graph/capture.h"
#include "client_shim/work/graph/capture_work.h"
#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"
#include "proto/wire/copy.h"

namespace detshare::shim::api {
namespace {

CUresult Fill(CUdeviceptr address, uint64_t pitch, uint32_t value, uint32_t element, uint64_t width,
              uint64_t height, CUstream handle, bool synchronous) {
  Stream* stream;
  CUresult result =
      synchronous ? StreamForWork(handle, &stream) : StreamForWorkOrCapture(handle, &stream);
  if (result != CUDA_SUCCESS || width == 0 || height == 0) return result;
  if (Capturing(*stream)) [[unlikely]]
    return CaptureFill(*stream, {address, pitch, value, element, width, height});
  Place place;
  result = FindFillPlace(address, pitch, element, width, height, stream->device, &place);
  if (result != CUDA_SUCCESS) return result;
  if (!place.writable) return CUDA_ERROR_INVALID_VALUE;
  result = SubmitWork(
      *stream, Op::cuMemsetD2D32Async,
      wire::cuMemsetD2D32Async{place.gpu, pitch, width, height, value, element, stream->id, 0});
  if (result != CUDA_SUCCESS) return result;
  return synchronous && place.host != 0 ? SynchronizeStream(*stream) : CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return Fill(dstDevice, 0, uc, 1, N, 1, kDefaultStream, true);
}
CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  return Fill(dstDevice, 0, us, 2, N, 1, kDefaultStream, true);
}
CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return Fill(dstDevice, 0, ui, 4, N, 1, kDefaultStream, true);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height) {
  return Fill(dstDevice, dstPitch, uc, 1, Width, Height, kDefaultStream, true);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                          size_t Height) {
  return Fill(dstDevice, dstPitch, us, 2, Width, Height, kDefaultStream, true);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                          size_t Height) {
  return Fill(dstDevice, dstPitch, ui, 4, Width, Height, kDefaultStream, true);
}
CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  return Fill(dstDevice, 0, uc, 1, N, 1, hStream, false);
}
CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
  return Fill(dstDevice, 0, us, 2, N, 1, hStream, false);
}
CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  return Fill(dstDevice, 0, ui, 4, N, 1, hStream, false);
}
CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream) {
  return Fill(dstDevice, dstPitch, uc, 1, Width, Height, hStream, false);
}
CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                            size_t Height, CUstream hStream) {
  return Fill(dstDevice, dstPitch, us, 2, Width, Height, hStream, false);
}
CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream hStream) {
  return Fill(dstDevice, dstPitch, ui, 4, Width, Height, hStream, false);
}

}  // namespace detshare::shim::api
