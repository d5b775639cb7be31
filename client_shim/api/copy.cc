// Copies: linear, 2D and 3D.
#include "client_shim/work/copy.h"

#include "client_shim/memory/arrays.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/graph/capture.h"
#include "client_shim/work/graph/capture_work.h"
#include "client_shim/work/peer_order.h"
#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

// The contexts at both ends of a copy, if the program names them.
struct Ends {
  Context* destination = nullptr;
  Context* source = nullptr;
};

// Whether a copy is ordered with the work of the context that its memory belongs to. Measured with
// driver 580: copies on the default stream wait for that context's blocking streams.
bool OrderedWith(const Stream& stream, const Context* context, bool synchronous) {
  if (context == nullptr || context == stream.context) return false;
  if (context->device != stream.device) return synchronous;
  return stream.legacy && context->green.load(std::memory_order_relaxed) == 0;
}

// Makes the copy. A copy that reaches into other contexts may be ordered with their work.
template <typename Copy>
CUresult InOrder(Stream& stream, const Ends& ends, const Place& destination, const Place& source,
                 bool synchronous, Copy copy) {
  PeerOrder order(stream);
  if (synchronous) {
    order.Add(ends.destination);
    order.Add(ends.source);
  }
  for (const Place& place : {destination, source}) {
    Context* context = FindContext(reinterpret_cast<CUcontext>(place.context));
    if (OrderedWith(stream, context, synchronous)) order.Add(context);
  }
  CUresult result = order.Begin();
  if (result == CUDA_SUCCESS) result = copy();
  return result == CUDA_SUCCESS ? order.End() : result;
}

CUresult Linear(uint64_t to, Side to_side, uint64_t from, Side from_side, size_t bytes,
                CUstream handle, bool synchronous, const Ends& ends = {}) {
  Stream* stream;
  CUresult result =
      synchronous ? StreamForWork(handle, &stream) : StreamForWorkOrCapture(handle, &stream);
  if (result != CUDA_SUCCESS || bytes == 0) return result;
  Place destination, source;
  result = FindPlace(to, bytes, to_side, stream->device, &destination);
  if (result != CUDA_SUCCESS) return result;
  result = FindPlace(from, bytes, from_side, stream->device, &source);
  if (result != CUDA_SUCCESS) return result;
  if (Capturing(*stream)) [[unlikely]] {
    return CaptureCopy(*stream, {destination, bytes, bytes}, {source, bytes, bytes}, bytes, 1, 1);
  }
  return InOrder(*stream, ends, destination, source, synchronous,
                 [&] { return CopyLinear(*stream, destination, source, bytes, synchronous); });
}

// One side of a 2D or 3D copy, as the program describes it.
struct BoxSide {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  size_t x, y, z;
  size_t pitch;   // bytes from row to row; 0: dense
  size_t height;  // rows from slice to slice; 0: the rows that are copied
  size_t lod = 0;
};

CUresult Resolve(const BoxSide& box, size_t width, size_t height, size_t depth, uint16_t device,
                 PitchedPlace* place) {
  if (box.type == CU_MEMORYTYPE_ARRAY) {
    if (box.lod != 0) return CUDA_ERROR_INVALID_VALUE;
    place->array_handle = box.array;
    return FindArrayPlace(box.array, box.x, box.y, box.z, width, height, depth, device,
                          &place->array);
  }
  Side side = Side::kAny;
  uint64_t base = box.device;
  switch (box.type) {
    case CU_MEMORYTYPE_HOST:
      side = Side::kHost;
      base = AddressOf(box.host);
      break;
    case CU_MEMORYTYPE_DEVICE:
      side = Side::kDevice;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t end;
  place->row_pitch = box.pitch != 0 ? box.pitch : width + box.x;
  if (__builtin_add_overflow(width, box.x, &end) ||
      (end > place->row_pitch && (height > 1 || depth > 1 || box.pitch != 0))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t rows = box.height != 0 ? box.height : height + box.y;
  // The driver compares a height that is given also where there is only one slice.
  if ((depth > 1 || box.height != 0) && (__builtin_add_overflow(height, box.y, &end) || end > rows))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t offset, more, bytes, reach;
  if (__builtin_mul_overflow(place->row_pitch, rows, &place->slice_pitch) ||
      __builtin_mul_overflow(place->slice_pitch, box.z, &offset) ||
      __builtin_mul_overflow(place->row_pitch, box.y, &more) ||
      __builtin_add_overflow(offset, more, &offset) ||
      __builtin_add_overflow(offset, box.x, &offset) ||
      __builtin_mul_overflow(place->slice_pitch, depth - 1, &bytes) ||
      __builtin_mul_overflow(place->row_pitch, height - 1, &more) ||
      __builtin_add_overflow(bytes, more, &bytes) || __builtin_add_overflow(bytes, width, &bytes) ||
      __builtin_add_overflow(offset, bytes, &reach) || __builtin_add_overflow(base, reach, &more)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The driver wants the address itself to belong to the memory that is copied.
  const CUresult result = FindPlace(base, reach, side, device, &place->place);
  if (place->place.gpu != 0) place->place.gpu += offset;
  if (place->place.host != 0) place->place.host += offset;
  return result;
}

CUresult Pitched(const BoxSide& to, const BoxSide& from, size_t width, size_t height, size_t depth,
                 CUstream handle, bool synchronous, const Ends& ends = {}) {
  Stream* stream;
  CUresult result =
      synchronous ? StreamForWork(handle, &stream) : StreamForWorkOrCapture(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (width == 0 || height == 0 || depth == 0) return CUDA_SUCCESS;
  PitchedPlace destination, source;
  result = Resolve(to, width, height, depth, stream->device, &destination);
  if (result != CUDA_SUCCESS) return result;
  result = Resolve(from, width, height, depth, stream->device, &source);
  if (result != CUDA_SUCCESS) return result;
  if (Capturing(*stream)) [[unlikely]]
    return CaptureCopy(*stream, destination, source, width, height, depth);
  return InOrder(*stream, ends, destination.place, source.place, synchronous, [&] {
    return CopyPitched(*stream, destination, source, width, height, depth, synchronous);
  });
}

CUresult Copy2D(const CUDA_MEMCPY2D* copy, CUstream stream, bool synchronous) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const BoxSide to{copy->dstMemoryType,
                   copy->dstHost,
                   copy->dstDevice,
                   copy->dstArray,
                   copy->dstXInBytes,
                   copy->dstY,
                   0,
                   copy->dstPitch,
                   0};
  const BoxSide from{copy->srcMemoryType,
                     copy->srcHost,
                     copy->srcDevice,
                     copy->srcArray,
                     copy->srcXInBytes,
                     copy->srcY,
                     0,
                     copy->srcPitch,
                     0};
  return Pitched(to, from, copy->WidthInBytes, copy->Height, 1, stream, synchronous);
}

// From a CUDA_MEMCPY3D, or from a CUDA_MEMCPY3D_PEER, which adds contexts.
template <typename Description>
BoxSide DestinationOf(const Description& copy) {
  return {copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray,  copy.dstXInBytes,
          copy.dstY,          copy.dstZ,    copy.dstPitch,  copy.dstHeight, copy.dstLOD};
}
template <typename Description>
BoxSide SourceOf(const Description& copy) {
  return {copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray,  copy.srcXInBytes,
          copy.srcY,          copy.srcZ,    copy.srcPitch,  copy.srcHeight, copy.srcLOD};
}

template <typename Description>
CUresult Copy3D(const Description* copy, CUstream stream, bool synchronous, const Ends& ends = {}) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Pitched(DestinationOf(*copy), SourceOf(*copy), copy->WidthInBytes, copy->Height,
                 copy->Depth, stream, synchronous, ends);
}

// A context that a copy between peers names must exist. With unified addressing, none need be named.
CUresult FindEnd(CUcontext handle, Context** end) {
  *end = handle == nullptr ? nullptr : FindContext(handle);
  if (handle == nullptr) return CUDA_SUCCESS;
  return *end == nullptr || (*end)->id.load(std::memory_order_acquire) == 0
             ? CUDA_ERROR_INVALID_CONTEXT
             : CUDA_SUCCESS;
}
CUresult FindEnds(CUcontext to, CUcontext from, Ends* ends) {
  const CUresult result = FindEnd(to, &ends->destination);
  return result == CUDA_SUCCESS ? FindEnd(from, &ends->source) : result;
}

CUresult Copy3DPeer(const CUDA_MEMCPY3D_PEER* copy, CUstream stream, bool synchronous) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Ends ends;
  const CUresult result = FindEnds(copy->dstContext, copy->srcContext, &ends);
  return result != CUDA_SUCCESS ? result : Copy3D(copy, stream, synchronous, ends);
}

CUresult LinearPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                    size_t bytes, CUstream stream, bool synchronous) {
  Ends ends;
  const CUresult result = FindEnds(to_context, from_context, &ends);
  if (result == CUDA_SUCCESS)
    return Linear(to, Side::kDevice, from, Side::kDevice, bytes, stream, synchronous, ends);
  // The driver looks at the addresses before the contexts.
  Context* context;
  if (bytes == 0 || CurrentContext(&context) != CUDA_SUCCESS) return result;
  for (const CUdeviceptr address : {to, from}) {
    Place place;
    if (FindPlace(address, bytes, Side::kDevice, context->device, &place) != CUDA_SUCCESS)
      return CUDA_ERROR_INVALID_VALUE;
  }
  return result;
}

}  // namespace
}  // namespace detshare::shim::api

namespace detshare::shim {

CUresult ResolveCopy(const CUDA_MEMCPY3D& copy, uint16_t device, PitchedPlace* to,
                     PitchedPlace* from) {
  if (copy.srcLOD != 0 || copy.dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = api::Resolve(api::DestinationOf(copy), copy.WidthInBytes, copy.Height,
                                 copy.Depth, device, to);
  if (result != CUDA_SUCCESS) return result;
  return api::Resolve(api::SourceOf(copy), copy.WidthInBytes, copy.Height, copy.Depth, device,
                      from);
}

}  // namespace detshare::shim

namespace detshare::shim::api {

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return Linear(dst, Side::kAny, src, Side::kAny, ByteCount, kDefaultStream, true);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return Linear(dstDevice, Side::kDevice, AddressOf(srcHost), Side::kAny, ByteCount, kDefaultStream,
                true);
}
CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return Linear(AddressOf(dstHost), Side::kAny, srcDevice, Side::kDevice, ByteCount, kDefaultStream,
                true);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return Linear(dstDevice, Side::kDevice, srcDevice, Side::kDevice, ByteCount, kDefaultStream,
                true);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return Linear(dst, Side::kAny, src, Side::kAny, ByteCount, hStream, false);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  return Linear(dstDevice, Side::kDevice, AddressOf(srcHost), Side::kAny, ByteCount, hStream,
                false);
}
CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return Linear(AddressOf(dstHost), Side::kAny, srcDevice, Side::kDevice, ByteCount, hStream,
                false);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return Linear(dstDevice, Side::kDevice, srcDevice, Side::kDevice, ByteCount, hStream, false);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) { return Copy2D(pCopy, kDefaultStream, true); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return Copy2D(pCopy, hStream, false);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) { return Copy3D(pCopy, kDefaultStream, true); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return Copy3D(pCopy, hStream, false);
}

// ---- between contexts of one device or of two

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
  return LinearPeer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, kDefaultStream, true);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  return LinearPeer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream, false);
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  return Copy3DPeer(pCopy, kDefaultStream, true);
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  return Copy3DPeer(pCopy, hStream, false);
}

}  // namespace detshare::shim::api
