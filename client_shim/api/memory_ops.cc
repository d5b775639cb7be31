// Operations of streams on words of memory.
#include "client_shim/work/memory_ops.h"

#include "client_shim/work/graph/capture.h"
#include "client_shim/work/graph/capture_work.h"
#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

CUresult Submit(CUstream handle, const CUstreamBatchMemOpParams* parameters, unsigned int count,
                MemoryOpVersion version) {
  if (count > wire::kMaxStreamMemoryOps || (count != 0 && parameters == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  CUresult result = StreamForWorkOrCapture(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (Capturing(*stream)) [[unlikely]]
    return count == 0 ? CUDA_SUCCESS : CaptureMemoryOps(*stream, parameters, count, 0);
  wire::StreamMemoryOp operations[wire::kMaxStreamMemoryOps];
  result = TranslateMemoryOps(stream->device, parameters, count, version, operations);
  if (result != CUDA_SUCCESS || count == 0) return result;
  return SubmitWork(*stream, Op::cuStreamBatchMemOp_v2,
                    wire::cuStreamBatchMemOp_v2{stream->id, count},
                    {operations, count * sizeof(operations[0])});
}

CUresult Wait(CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags, bool wide,
              MemoryOpVersion version) {
  CUstreamBatchMemOpParams parameters{};
  parameters.operation = wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
  parameters.waitValue.address = address;
  parameters.waitValue.value64 = value;
  parameters.waitValue.flags = flags;
  return Submit(stream, &parameters, 1, version);
}

CUresult Write(CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags, bool wide,
               MemoryOpVersion version) {
  CUstreamBatchMemOpParams parameters{};
  parameters.operation = wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
  parameters.writeValue.address = address;
  parameters.writeValue.value64 = value;
  parameters.writeValue.flags = flags;
  return Submit(stream, &parameters, 1, version);
}

}  // namespace

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                             unsigned int flags) {
  return Wait(stream, addr, value, flags, false, MemoryOpVersion::kFirst);
}
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags) {
  return Wait(stream, addr, value, flags, false, MemoryOpVersion::kSecond);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                             unsigned int flags) {
  return Wait(stream, addr, value, flags, true, MemoryOpVersion::kFirst);
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags) {
  return Wait(stream, addr, value, flags, true, MemoryOpVersion::kSecond);
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                              unsigned int flags) {
  return Write(stream, addr, value, flags, false, MemoryOpVersion::kFirst);
}
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int flags) {
  return Write(stream, addr, value, flags, false, MemoryOpVersion::kSecond);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                              unsigned int flags) {
  return Write(stream, addr, value, flags, true, MemoryOpVersion::kFirst);
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int flags) {
  return Write(stream, addr, value, flags, true, MemoryOpVersion::kSecond);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count,
                            CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE
                    : Submit(stream, paramArray, count, MemoryOpVersion::kFirst);
}
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE
                    : Submit(stream, paramArray, count, MemoryOpVersion::kSecond);
}

}  // namespace detshare::shim::api
