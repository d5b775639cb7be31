#include "client_shim/work/memory_ops.h"

#include "client_shim/objects/current_context.h"
#include "client_shim/work/copy.h"

namespace detshare::shim {
namespace {

struct Offered {
  bool any, wide, nor, flush;
};

Offered OfferedBy(uint16_t device_index, MemoryOpVersion version) {
  const DeviceInfo& device = session().device(device_index);
  const bool flush = device.attribute(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES) != 0;
  if (version == MemoryOpVersion::kFirst) {
    return {device.attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1) != 0,
            device.attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1) != 0,
            device.attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1) != 0, flush};
  }
  return {true, device.attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) != 0,
          device.attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR) != 0, flush};
}

CUresult FindWord(uint16_t device, CUdeviceptr address, uint64_t bytes, uint64_t* gpu) {
  if (address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  // The driver refuses memory of pools (seen with driver 580).
  Allocation allocation;
  if (pointers().Find(address, &allocation) && allocation.pool != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Place place;
  const CUresult result = FindPlace(address, bytes, Side::kDevice, device, &place);
  if (result != CUDA_SUCCESS) return result;
  const Context* owner = FindContext(reinterpret_cast<CUcontext>(place.context));
  if (owner != nullptr && owner->device != device) return CUDA_ERROR_NOT_SUPPORTED;
  *gpu = place.gpu;
  return CUDA_SUCCESS;
}

CUresult TranslateWait(uint16_t device, const CUstreamBatchMemOpParams& from,
                       const Offered& offered, bool wide, wire::StreamMemoryOp* to) {
  const uint32_t flags = from.waitValue.flags;
  const uint32_t condition = flags & ~static_cast<uint32_t>(CU_STREAM_WAIT_VALUE_FLUSH);
  if (condition > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
  if (condition == CU_STREAM_WAIT_VALUE_NOR && !offered.nor) return CUDA_ERROR_NOT_SUPPORTED;
  if (condition != flags && !offered.flush) return CUDA_ERROR_NOT_SUPPORTED;
  to->flags = flags;
  to->value = wide ? from.waitValue.value64 : from.waitValue.value;
  // The daemon does not keep a stream waiting for a value that cannot come.
  const uint64_t all = wide ? UINT64_MAX : UINT32_MAX;
  if ((condition == CU_STREAM_WAIT_VALUE_AND && to->value == 0) ||
      (condition == CU_STREAM_WAIT_VALUE_NOR && to->value == all)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return FindWord(device, from.waitValue.address, wide ? 8 : 4, &to->address);
}

CUresult TranslateWrite(uint16_t device, const CUstreamBatchMemOpParams& from,
                        MemoryOpVersion version, bool wide, wire::StreamMemoryOp* to) {
  // Without its barrier a write may come earlier, but need not.
  const uint32_t known =
      version == MemoryOpVersion::kFirst ? CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER : 0;
  if ((from.writeValue.flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  to->flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  to->value = wide ? from.writeValue.value64 : from.writeValue.value;
  return FindWord(device, from.writeValue.address, wide ? 8 : 4, &to->address);
}

CUresult Translate(uint16_t device, const CUstreamBatchMemOpParams& from, const Offered& offered,
                   MemoryOpVersion version, wire::StreamMemoryOp* to) {
  *to = {static_cast<uint32_t>(from.operation), 0, 0, 0, 0};
  switch (to->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      if (!offered.wide) return CUDA_ERROR_NOT_SUPPORTED;
      return TranslateWait(device, from, offered, true, to);
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return TranslateWait(device, from, offered, false, to);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      if (!offered.wide) return CUDA_ERROR_NOT_SUPPORTED;
      return TranslateWrite(device, from, version, true, to);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return TranslateWrite(device, from, version, false, to);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      if (!offered.flush) return CUDA_ERROR_NOT_SUPPORTED;
      return from.flushRemoteWrites.flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_STREAM_MEM_OP_BARRIER:
      if (version == MemoryOpVersion::kFirst ||
          from.memoryBarrier.flags > CU_STREAM_MEMORY_BARRIER_TYPE_GPU) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      to->flags = from.memoryBarrier.flags;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult TranslateMemoryOps(uint16_t device, const CUstreamBatchMemOpParams* parameters,
                            uint32_t count, MemoryOpVersion version,
                            wire::StreamMemoryOp* operations) {
  const Offered offered = OfferedBy(device, version);
  if (!offered.any) return CUDA_ERROR_NOT_SUPPORTED;
  for (uint32_t i = 0; i < count; ++i) {
    const CUresult result = Translate(device, parameters[i], offered, version, &operations[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim
