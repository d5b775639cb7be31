// Batches of copies. The shim makes each copy on the stream, in the order of the batch, which is
// one of the orders that CUDA allows. It reads ordinary host memory before the call returns, as
// every source order allows.
#include <cstdint>

#include "client_shim/memory/arrays.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

constexpr size_t kNoCopy = SIZE_MAX;  // *failed: the error does not belong to one copy

bool OrderValid(CUmemcpySrcAccessOrder order) {
  return order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
         order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
         order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}
bool FlagsValid(unsigned int flags) {
  return (flags & ~static_cast<unsigned int>(CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)) == 0;
}
// The driver checks the hints also where it does not use them. NUMA nodes are not checked.
bool HintValid(const CUmemLocation& hint) {
  switch (hint.type) {
    case CU_MEM_LOCATION_TYPE_NONE:
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return true;
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return session().HasDevice(hint.id);
    default:
      return false;
  }
}

// The context's default stream does not accept batches.
CUresult StreamForBatch(CUstream handle) {
  Stream* stream;
  const CUresult result = StreamForWork(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  return stream->legacy ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult Linear(const CUdeviceptr* to, const CUdeviceptr* from, const size_t* bytes, size_t count,
                const CUmemcpyAttributes* attributes, const size_t* begins, size_t attribute_count,
                CUstream stream, size_t* failed) {
  *failed = kNoCopy;
  if (count == 0 || to == nullptr || from == nullptr || bytes == nullptr || attribute_count == 0 ||
      attribute_count > count || attributes == nullptr || begins == nullptr || begins[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < attribute_count; ++i) {
    if (!OrderValid(attributes[i].srcAccessOrder) || !FlagsValid(attributes[i].flags) ||
        !HintValid(attributes[i].srcLocHint) || !HintValid(attributes[i].dstLocHint)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (i > 0 && (begins[i] <= begins[i - 1] || begins[i] >= count))
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult result = StreamForBatch(stream); result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = bytes[i] == 0 ? CUDA_ERROR_INVALID_VALUE
                                          : api::cuMemcpyAsync(to[i], from[i], bytes[i], stream);
    if (result != CUDA_SUCCESS) {
      *failed = i;
      return result;
    }
  }
  return CUDA_SUCCESS;
}

// The bytes of a copy's unit: a texel if an array takes part, else one byte.
CUresult ElementOf(const CUDA_MEMCPY3D_BATCH_OP& operation, uint64_t* element) {
  *element = 0;
  for (const CUmemcpy3DOperand* operand : {&operation.src, &operation.dst}) {
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
      if (!HintValid(operand->op.ptr.locHint)) return CUDA_ERROR_INVALID_VALUE;
      continue;
    }
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
    const ArrayObject* const array = FindArray(operand->op.array.array);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (*element != 0 && *element != array->texel_bytes()) return CUDA_ERROR_INVALID_VALUE;
    *element = array->texel_bytes();
  }
  if (*element == 0) *element = 1;
  return CUDA_SUCCESS;
}

CUresult Box(const CUDA_MEMCPY3D_BATCH_OP& operation, CUstream stream) {
  if (operation.extent.width == 0 || operation.extent.height == 0 || operation.extent.depth == 0 ||
      !OrderValid(operation.srcAccessOrder) || !FlagsValid(operation.flags)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t element;
  if (const CUresult result = ElementOf(operation, &element); result != CUDA_SUCCESS) return result;
  CUDA_MEMCPY3D copy{};
  bool overflow = __builtin_mul_overflow(operation.extent.width, element, &copy.WidthInBytes);
  copy.Height = operation.extent.height;
  copy.Depth = operation.extent.depth;
  if (operation.src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    const auto& array = operation.src.op.array;
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = array.array;
    overflow |= __builtin_mul_overflow(array.offset.x, element, &copy.srcXInBytes);
    copy.srcY = array.offset.y;
    copy.srcZ = array.offset.z;
  } else {
    copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.srcDevice = operation.src.op.ptr.ptr;
    overflow |= __builtin_mul_overflow(operation.src.op.ptr.rowLength, element, &copy.srcPitch);
    copy.srcHeight = operation.src.op.ptr.layerHeight;
  }
  if (operation.dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    const auto& array = operation.dst.op.array;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array.array;
    overflow |= __builtin_mul_overflow(array.offset.x, element, &copy.dstXInBytes);
    copy.dstY = array.offset.y;
    copy.dstZ = array.offset.z;
  } else {
    copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.dstDevice = operation.dst.op.ptr.ptr;
    overflow |= __builtin_mul_overflow(operation.dst.op.ptr.rowLength, element, &copy.dstPitch);
    copy.dstHeight = operation.dst.op.ptr.layerHeight;
  }
  return overflow ? CUDA_ERROR_INVALID_VALUE : api::cuMemcpy3DAsync_v2(&copy, stream);
}

CUresult Boxes(const CUDA_MEMCPY3D_BATCH_OP* operations, size_t count, unsigned long long flags,
               CUstream stream, size_t* failed) {
  *failed = kNoCopy;
  if (count == 0 || operations == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = StreamForBatch(stream); result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = Box(operations[i], stream);
    if (result != CUDA_SUCCESS) {
      *failed = i;
      return result;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                            size_t* failIdx, CUstream hStream) {
  return Linear(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream, failIdx);
}
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
  size_t failed;
  return Linear(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream, &failed);
}
CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                              unsigned long long flags, CUstream hStream) {
  return Boxes(opList, numOps, flags, hStream, failIdx);
}
CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                 unsigned long long flags, CUstream hStream) {
  size_t failed;
  return Boxes(opList, numOps, flags, hStream, &failed);
}

}  // namespace detshare::shim::api
