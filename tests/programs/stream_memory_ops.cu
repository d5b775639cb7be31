// cuStreamWaitValue, cuStreamWriteValue and cuStreamBatchMemOp. Streams wait for words of memory
// that the host, a kernel or another stream writes.
#include "check_driver.h"

__global__ void Set(unsigned* word, unsigned value) { *word = value; }

__global__ void Append(const unsigned* from, unsigned* log, unsigned* length) {
  log[(*length)++] = *from;
}

int main() {
  const CUdevice device = check::UsePrimaryContext();
  int wide = 0, nor = 0;
  CHECK_CU(cuDeviceGetAttribute(&wide, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device));
  CHECK_CU(cuDeviceGetAttribute(&nor, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, device));
  std::printf("64 bits %d, NOR %d\n", wide, nor);

  CUdeviceptr words, log, length;
  CHECK_CU(cuMemAlloc(&words, 64));
  CHECK_CU(cuMemAlloc(&log, 64 * sizeof(unsigned)));
  CHECK_CU(cuMemAlloc(&length, sizeof(unsigned)));
  CHECK_CU(cuMemsetD32(words, 0, 16));
  CHECK_CU(cuMemsetD32(log, 0, 64));
  CHECK_CU(cuMemsetD32(length, 0, 1));
  CHECK_CU(cuCtxSynchronize());  // the streams do not wait for the default stream
  unsigned* device_words = reinterpret_cast<unsigned*>(words);
  unsigned* device_log = reinterpret_cast<unsigned*>(log);
  unsigned* device_length = reinterpret_cast<unsigned*>(length);
  CUstream first, second;
  CHECK_CU(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));

  // The host lets a stream go on.
  volatile unsigned* host;
  CHECK_CU(cuMemHostAlloc(reinterpret_cast<void**>(const_cast<unsigned**>(&host)), 64,
                          CU_MEMHOSTALLOC_DEVICEMAP));
  CUdeviceptr host_words;
  CHECK_CU(cuMemHostGetDevicePointer(&host_words, const_cast<unsigned*>(host), 0));
  host[0] = 0;
  CHECK_CU(cuStreamWaitValue32(first, host_words, 5, CU_STREAM_WAIT_VALUE_GEQ));
  CHECK_CU(cuStreamWriteValue32(first, host_words + 4, 77, 0));
  EXPECT_CU(cuStreamQuery(first), CUDA_ERROR_NOT_READY);
  host[0] = 4;
  EXPECT_CU(cuStreamQuery(first), CUDA_ERROR_NOT_READY);
  host[0] = 6;
  CHECK_CU(cuStreamSynchronize(first));
  std::printf("after the host's word: %u\n", host[1]);

  // Two streams take turns. Each waits for what the other writes.
  for (unsigned turn = 0; turn < 4; ++turn) {
    CHECK_CU(cuStreamWaitValue32(first, words, 2 * turn, CU_STREAM_WAIT_VALUE_EQ));
    Set<<<1, 1, 0, first>>>(device_words + 1, 10 * turn);
    Append<<<1, 1, 0, first>>>(device_words + 1, device_log, device_length);
    CHECK_CU(cuStreamWriteValue32(first, words, 2 * turn + 1, 0));
    CHECK_CU(cuStreamWaitValue32(second, words, 2 * turn + 1, CU_STREAM_WAIT_VALUE_EQ));
    Set<<<1, 1, 0, second>>>(device_words + 1, 10 * turn + 5);
    Append<<<1, 1, 0, second>>>(device_words + 1, device_log, device_length);
    CHECK_CU(cuStreamWriteValue32(second, words, 2 * turn + 2, 0));
  }
  CHECK_CU(cuCtxSynchronize());
  unsigned order[8];
  CHECK_CU(cuMemcpyDtoH(order, log, sizeof(order)));
  for (unsigned value : order) std::printf("%u ", value);
  std::printf("\n");

  // A kernel of a stream that was started later lets the other stream go on.
  CHECK_CU(cuMemsetD32(words, 0, 16));
  CHECK_CU(cuCtxSynchronize());
  CHECK_CU(cuStreamWaitValue32(first, words + 8, 0x10, CU_STREAM_WAIT_VALUE_AND));
  CHECK_CU(cuStreamWriteValue32(first, host_words + 8, 99, 0));
  host[2] = 0;
  Set<<<1, 1, 0, second>>>(device_words + 2, 0x18);
  CHECK_CU(cuStreamSynchronize(first));
  std::printf("after a kernel's word: %u\n", host[2]);

  // A batch, with words of 64 bits.
  CUstreamBatchMemOpParams batch[5] = {};
  batch[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  batch[0].writeValue.address = words + 16;
  batch[0].writeValue.value64 = 0x100000000ull;
  batch[1].operation = CU_STREAM_MEM_OP_BARRIER;
  batch[1].memoryBarrier.flags = CU_STREAM_MEMORY_BARRIER_TYPE_GPU;
  batch[2].operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  batch[2].waitValue.address = words + 16;
  batch[2].waitValue.value64 = 0xFFFFFFFFull;
  batch[2].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  batch[3].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  batch[3].waitValue.address = words + 16;
  batch[3].waitValue.value = 0xFFFFFFF0u;
  batch[3].waitValue.flags = CU_STREAM_WAIT_VALUE_NOR;
  batch[4].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  batch[4].writeValue.address = words + 24;
  batch[4].writeValue.value = 1234;
  CHECK_CU(cuStreamBatchMemOp(first, 5, batch, 0));
  CHECK_CU(cuStreamSynchronize(first));
  unsigned after[3];
  CHECK_CU(cuMemcpyDtoH(after, words + 16, sizeof(after)));
  std::printf("after a batch: %u %u %u\n", after[0], after[1], after[2]);

  // The legacy default stream.
  CHECK_CU(cuStreamWriteValue32(nullptr, words, 4711, 0));
  CHECK_CU(cuMemcpyDtoH(after, words, 4));
  std::printf("default stream: %u\n", after[0]);

  EXPECT_CU(cuStreamWriteValue32(first, words + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuStreamWaitValue64(first, words + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuStreamWriteValue32(first, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuStreamBatchMemOp(first, 1, batch, 1), CUDA_ERROR_INVALID_VALUE);

  CHECK_CU(cuStreamDestroy(first));
  CHECK_CU(cuStreamDestroy(second));
  CHECK_CU(cuMemFreeHost(const_cast<unsigned*>(host)));
  for (CUdeviceptr memory : {words, log, length}) CHECK_CU(cuMemFree(memory));
  // The driver refuses memory of pools (seen with driver 580).
  CUdeviceptr pooled = 0;
  CUstream last;
  CHECK_CU(cuStreamCreate(&last, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuMemAllocAsync(&pooled, 65536, last));
  CHECK_CU(cuStreamSynchronize(last));
  EXPECT_CU(cuStreamWaitValue32(last, pooled + 8, 0, CU_STREAM_WAIT_VALUE_GEQ),
            CUDA_ERROR_INVALID_VALUE);
  // A stream that was given no synchronization policy says so.
  CUstreamAttrValue value = {};
  CHECK_CU(cuStreamGetAttribute(last, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  REQUIRE(static_cast<int>(value.syncPolicy) == -1);
  CHECK_CU(cuMemFreeAsync(pooled, last));
  CHECK_CU(cuStreamDestroy(last));
  return check::Ok();
}
