// Copies and memsets of the driver API: 1D with offsets, 2D and 3D descriptors, and elements of 1,
// 2 and 4 bytes.
#include "check_driver.h"

using Bytes = std::vector<unsigned char>;

Bytes Read(CUdeviceptr from, std::size_t count) {
  Bytes bytes(count);
  CHECK_CU(cuMemcpyDtoH(bytes.data(), from, count));
  return bytes;
}

template <typename T>
void Fill(Bytes& bytes, std::size_t from, T value, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    std::memcpy(&bytes[from + i * sizeof(T)], &value, sizeof(T));
}

int main() {
  check::UsePrimaryContext();
  constexpr std::size_t kBytes = 1 << 16;
  CUdeviceptr a = 0, b = 0;
  CHECK_CU(cuMemAlloc(&a, kBytes));
  CHECK_CU(cuMemAlloc(&b, kBytes));
  CUdeviceptr base = 0;
  std::size_t size = 0;
  CHECK_CU(cuMemGetAddressRange(&base, &size, a + 777));
  REQUIRE(base == a && size == kBytes);

  Bytes host(kBytes), want(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) host[i] = static_cast<unsigned char>(i * 131 >> 4);

  // One dimension, odd offsets, device to device.
  CHECK_CU(cuMemsetD8(b, 0, kBytes));
  CHECK_CU(cuMemcpyHtoD(a, host.data(), kBytes));
  CHECK_CU(cuMemcpyDtoD(b + 13, a + 7, 30001));
  CHECK_CU(cuMemcpy(b + 40003, a + 5, 999));
  std::memcpy(&want[13], &host[7], 30001);
  std::memcpy(&want[40003], &host[5], 999);
  check::Compare("1d", Read(b, kBytes), want);

  // Two dimensions: host to device, device to device, device to host, all with offsets.
  CUDA_MEMCPY2D up = {};
  up.srcMemoryType = CU_MEMORYTYPE_HOST;
  up.srcHost = host.data();
  up.srcPitch = 200;
  up.srcXInBytes = 17;
  up.srcY = 3;
  up.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  up.dstDevice = b;
  up.dstPitch = 256;
  up.dstXInBytes = 5;
  up.dstY = 2;
  up.WidthInBytes = 123;
  up.Height = 100;
  CHECK_CU(cuMemcpy2D(&up));
  for (int y = 0; y < 100; ++y)
    std::memcpy(&want[(y + 2) * 256 + 5], &host[(y + 3) * 200 + 17], 123);
  check::Compare("2d up", Read(b, kBytes), want);

  CUDA_MEMCPY2D across = up;
  across.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  across.srcDevice = a;
  across.dstXInBytes = 130;
  across.dstY = 50;
  across.WidthInBytes = 100;
  CHECK_CU(cuMemcpy2DUnaligned(&across));
  for (int y = 0; y < 100; ++y) {
    std::memcpy(&want[(y + 50) * 256 + 130], &host[(y + 3) * 200 + 17], 100);
  }
  check::Compare("2d across", Read(b, kBytes), want);

  Bytes part(64 * 50, 1), want_part(64 * 50, 1);
  CUDA_MEMCPY2D down = {};
  down.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  down.srcDevice = b;
  down.srcPitch = 256;
  down.srcXInBytes = 3;
  down.srcY = 20;
  down.dstMemoryType = CU_MEMORYTYPE_HOST;
  down.dstHost = part.data();
  down.dstPitch = 64;
  down.dstXInBytes = 9;
  down.dstY = 1;
  down.WidthInBytes = 50;
  down.Height = 40;
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuMemcpy2DAsync(&down, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  for (int y = 0; y < 40; ++y)
    std::memcpy(&want_part[(y + 1) * 64 + 9], &want[(y + 20) * 256 + 3], 50);
  check::Compare("2d down", part, want_part);

  // Three dimensions: planes of 32 rows of 64 bytes into planes of 20 rows of 128 bytes.
  CUDA_MEMCPY3D box = {};
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = host.data();
  box.srcPitch = 64;
  box.srcHeight = 32;
  box.srcXInBytes = 11;
  box.srcY = 4;
  box.srcZ = 2;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = b;
  box.dstPitch = 128;
  box.dstHeight = 20;
  box.dstXInBytes = 70;
  box.dstY = 1;
  box.dstZ = 3;
  box.WidthInBytes = 43;
  box.Height = 17;
  box.Depth = 9;
  CHECK_CU(cuMemcpy3D(&box));
  for (int z = 0; z < 9; ++z) {
    for (int y = 0; y < 17; ++y) {
      std::memcpy(&want[((z + 3) * 20 + y + 1) * 128 + 70], &host[((z + 2) * 32 + y + 4) * 64 + 11],
                  43);
    }
  }
  check::Compare("3d", Read(b, kBytes), want);

  // Memsets of 1, 2 and 4 bytes, in one and two dimensions, with and without the stream.
  CHECK_CU(cuMemsetD8(b + 1, 0x12, 333));
  Fill<std::uint8_t>(want, 1, 0x12, 333);
  CHECK_CU(cuMemsetD16(b + 1002, 0x3456, 777));
  Fill<std::uint16_t>(want, 1002, 0x3456, 777);
  CHECK_CU(cuMemsetD32(b + 4004, 0x789abcde, 555));
  Fill<std::uint32_t>(want, 4004, 0x789abcde, 555);
  CHECK_CU(cuMemsetD2D8(b + 10001, 100, 0xf1, 33, 20));
  CHECK_CU(cuMemsetD2D16(b + 20000, 100, 0xf2f3, 21, 20));
  CHECK_CU(cuMemsetD2D32(b + 30000, 100, 0xf4f5f6f7, 19, 20));
  for (int y = 0; y < 20; ++y) {
    Fill<std::uint8_t>(want, 10001 + y * 100, 0xf1, 33);
    Fill<std::uint16_t>(want, 20000 + y * 100, 0xf2f3, 21);
    Fill<std::uint32_t>(want, 30000 + y * 100, 0xf4f5f6f7, 19);
  }
  CHECK_CU(cuMemsetD8Async(b + 50001, 0x21, 99, stream));
  CHECK_CU(cuMemsetD16Async(b + 51000, 0x4321, 99, stream));
  CHECK_CU(cuMemsetD32Async(b + 52000, 0x87654321, 99, stream));
  CHECK_CU(cuMemsetD2D32Async(b + 53000, 64, 0x01020304, 8, 10, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  Fill<std::uint8_t>(want, 50001, 0x21, 99);
  Fill<std::uint16_t>(want, 51000, 0x4321, 99);
  Fill<std::uint32_t>(want, 52000, 0x87654321, 99);
  for (int y = 0; y < 10; ++y) Fill<std::uint32_t>(want, 53000 + y * 64, 0x01020304, 8);
  CHECK_CU(cuCtxSynchronize());
  check::Compare("memsets", Read(b, kBytes), want);

  CUdeviceptr pitched = 0;
  std::size_t pitch = 0;
  CHECK_CU(cuMemAllocPitch(&pitched, &pitch, 1000, 10, 4));
  REQUIRE(pitch >= 1000);
  CHECK_CU(cuMemFree(pitched));
  EXPECT_ERROR_CU(cuMemAllocPitch(&pitched, &pitch, 1000, 10, 3));
  EXPECT_ERROR_CU(cuMemsetD32(b + 2, 0, 4));
  up.WidthInBytes = 300;
  EXPECT_ERROR_CU(cuMemcpy2D(&up));

  CHECK_CU(cuStreamDestroy(stream));
  CHECK_CU(cuMemFree(a));
  CHECK_CU(cuMemFree(b));
  CHECK_CU(cuDevicePrimaryCtxRelease(0));
  return check::Ok();
}
