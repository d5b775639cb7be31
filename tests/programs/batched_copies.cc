// cuMemcpyBatchAsync and cuMemcpy3DBatchAsync: several copies between host and device in one call.
#include "check_driver.h"

int main() {
  check::UsePrimaryContext();
  CUstream stream;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  constexpr size_t kCopies = 5, kWords = 1000;
  std::vector<std::vector<unsigned>> host(kCopies, std::vector<unsigned>(kWords));
  std::vector<std::vector<unsigned>> back(kCopies, std::vector<unsigned>(kWords));
  check::Random random(3);
  CUdeviceptr device;
  CHECK_CU(cuMemAlloc(&device, kCopies * kWords * sizeof(unsigned)));
  std::vector<CUdeviceptr> from, to, there;
  std::vector<size_t> sizes;
  for (size_t i = 0; i < kCopies; ++i) {
    for (unsigned& word : host[i]) word = random.Next32();
    from.push_back(reinterpret_cast<CUdeviceptr>(host[i].data()));
    there.push_back(device + i * kWords * sizeof(unsigned));
    to.push_back(reinterpret_cast<CUdeviceptr>(back[i].data()));
    sizes.push_back((kWords - i) * sizeof(unsigned));
  }
  CUmemcpyAttributes attributes[2] = {};
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  size_t begins[2] = {0, 3};
  CHECK_CU(cuMemcpyBatchAsync(there.data(), from.data(), sizes.data(), kCopies, attributes, begins,
                              2, stream));
  CHECK_CU(cuMemcpyBatchAsync(to.data(), there.data(), sizes.data(), kCopies, attributes, begins, 1,
                              stream));
  CHECK_CU(cuStreamSynchronize(stream));
  for (size_t i = 0; i < kCopies; ++i) {
    for (size_t word = kWords - i; word < kWords; ++word) REQUIRE(back[i][word] == 0);
    host[i].resize(kWords - i);
    back[i].resize(kWords - i);
    check::Compare("linear", back[i], host[i]);
  }

  // Boxes of 8 x 4 x 2 bytes from rows of 32 bytes and layers of 6 rows.
  CHECK_CU(cuMemsetD8(device, 0, 1024));
  CHECK_CU(cuCtxSynchronize());  // the stream does not wait for the default stream
  void* pinned;
  CHECK_CU(cuMemAllocHost(&pinned, 1024));
  unsigned char* const box = static_cast<unsigned char*>(pinned);
  std::vector<unsigned char> result(1024), want(1024, 0);
  for (int i = 0; i < 1024; ++i) box[i] = static_cast<unsigned char>(random.Next32());
  CUDA_MEMCPY3D_BATCH_OP operations[2] = {};
  for (int i = 0; i < 2; ++i) {
    CUDA_MEMCPY3D_BATCH_OP& operation = operations[i];
    operation.src.type = operation.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    operation.src.op.ptr.ptr = reinterpret_cast<CUdeviceptr>(box) + 8 * i;
    operation.src.op.ptr.rowLength = 32;
    operation.src.op.ptr.layerHeight = 6;
    operation.dst.op.ptr.ptr = device + 512 * i;
    operation.dst.op.ptr.rowLength = 16;
    operation.dst.op.ptr.layerHeight = 4;
    operation.extent = {8, 4, 2};
    operation.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    for (int z = 0; z < 2; ++z)
      for (int y = 0; y < 4; ++y)
        for (int x = 0; x < 8; ++x)
          want[512 * i + (z * 4 + y) * 16 + x] = box[8 * i + (z * 6 + y) * 32 + x];
  }
  CHECK_CU(cuMemcpy3DBatchAsync(2, operations, 0, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  CHECK_CU(cuMemcpyDtoH(result.data(), device, 1024));
  check::Compare("boxes", result, want);

  EXPECT_CU(cuMemcpyBatchAsync(there.data(), from.data(), sizes.data(), kCopies, attributes, begins,
                               1, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemcpy3DBatchAsync(2, operations, 1, stream), CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuMemFreeHost(pinned));
  CHECK_CU(cuMemFree(device));
  CHECK_CU(cuStreamDestroy(stream));
  return check::Ok();
}
