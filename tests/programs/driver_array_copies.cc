// Copies with arrays by the driver API: every pair of sides, whole arrays and boxes in them, in
// streams and without, from ordinary and pinned memory, large copies, and invalid ones.
#include "check_driver.h"

using Bytes = std::vector<unsigned char>;

Bytes Pattern(std::size_t count, unsigned seed) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<unsigned char>((i * 167 + seed) >> 3);
  return bytes;
}

CUarray Make(std::size_t width, std::size_t height, std::size_t depth, CUarray_format format,
             unsigned channels, unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR description = {};
  description.Width = width;
  description.Height = height;
  description.Depth = depth;
  description.Format = format;
  description.NumChannels = channels;
  description.Flags = flags;
  CUarray array = nullptr;
  CHECK_CU(cuArray3DCreate(&array, &description));
  CUDA_ARRAY3D_DESCRIPTOR got = {};
  CHECK_CU(cuArray3DGetDescriptor(&got, array));
  REQUIRE(got.Width == width && got.Height == height && got.Depth == depth &&
          got.Format == format && got.NumChannels == channels && got.Flags == flags);
  return array;
}

void Lines() {
  CUDA_ARRAY_DESCRIPTOR description = {};
  description.Width = 3000;
  description.Format = CU_AD_FORMAT_UNSIGNED_INT16;
  description.NumChannels = 2;
  CUarray a = nullptr, b = nullptr;
  CHECK_CU(cuArrayCreate(&a, &description));
  CHECK_CU(cuArrayCreate(&b, &description));
  const Bytes host = Pattern(12000, 1);
  Bytes want(12000, 0), got(12000, 0);
  CHECK_CU(cuMemcpyHtoA(a, 0, host.data(), 12000));
  CHECK_CU(cuMemcpyHtoA(b, 0, want.data(), 12000));
  CHECK_CU(cuMemcpyAtoA(b, 400, a, 800, 5000));
  std::memcpy(&want[400], &host[800], 5000);
  CUdeviceptr memory = 0;
  CHECK_CU(cuMemAlloc(&memory, 12000));
  CHECK_CU(cuMemsetD8(memory, 0x5a, 12000));
  CHECK_CU(cuMemcpyAtoD(memory + 100, b, 200, 6000));
  CHECK_CU(cuMemcpyDtoA(b, 8000, memory + 50, 4000));
  Bytes between(12000, 0x5a);
  std::memcpy(&between[100], &want[200], 6000);
  std::memcpy(&want[8000], &between[50], 4000);
  CHECK_CU(cuMemcpyAtoH(got.data(), b, 0, 12000));
  check::Compare("lines", got, want);

  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  unsigned char* pinned = nullptr;
  CHECK_CU(cuMemAllocHost(reinterpret_cast<void**>(&pinned), 12000));
  std::memcpy(pinned, host.data(), 12000);
  CHECK_CU(cuMemcpyHtoAAsync(a, 4, pinned + 400, 11000, stream));
  CHECK_CU(cuMemcpyAtoHAsync(pinned, a, 0, 12000, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  want = host;
  std::memcpy(&want[4], &host[400], 11000);
  check::Compare("lines in a stream", Bytes(pinned, pinned + 12000), want);
  CHECK_CU(cuMemFreeHost(pinned));
  CHECK_CU(cuStreamDestroy(stream));
  CHECK_CU(cuMemFree(memory));
  CHECK_CU(cuArrayDestroy(a));
  CHECK_CU(cuArrayDestroy(b));
}

void Planes() {
  constexpr std::size_t kRow = 200 * 4, kRows = 90;
  const CUarray array = Make(200, kRows, 0, CU_AD_FORMAT_FLOAT, 1);
  const Bytes host = Pattern(1024 * 100, 2);
  CUDA_MEMCPY2D up = {};
  up.srcMemoryType = CU_MEMORYTYPE_HOST;
  up.srcHost = host.data();
  up.srcPitch = 1024;
  up.srcXInBytes = 3;
  up.srcY = 5;
  up.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  up.dstArray = array;
  up.WidthInBytes = kRow;
  up.Height = kRows;
  CHECK_CU(cuMemcpy2D(&up));
  Bytes want(kRow * kRows);
  for (std::size_t y = 0; y < kRows; ++y)
    std::memcpy(&want[y * kRow], &host[(y + 5) * 1024 + 3], kRow);

  // A box from the array into device memory, and another one back.
  CUdeviceptr memory = 0;
  CHECK_CU(cuMemAlloc(&memory, 512 * 64));
  CHECK_CU(cuMemsetD8(memory, 0x77, 512 * 64));
  Bytes between(512 * 64, 0x77);
  CUDA_MEMCPY2D out = {};
  out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  out.srcArray = array;
  out.srcXInBytes = 40;
  out.srcY = 10;
  out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  out.dstDevice = memory;
  out.dstPitch = 512;
  out.dstXInBytes = 8;
  out.dstY = 2;
  out.WidthInBytes = 400;
  out.Height = 50;
  CHECK_CU(cuMemcpy2D(&out));
  for (std::size_t y = 0; y < 50; ++y)
    std::memcpy(&between[(y + 2) * 512 + 8], &want[(y + 10) * kRow + 40], 400);
  CUDA_MEMCPY2D in = {};
  in.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  in.srcDevice = memory;
  in.srcPitch = 512;
  in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  in.dstArray = array;
  in.dstXInBytes = 120;
  in.dstY = 30;
  in.WidthInBytes = 480;
  in.Height = 60;
  CHECK_CU(cuMemcpy2DAsync(&in, nullptr));
  for (std::size_t y = 0; y < 60; ++y)
    std::memcpy(&want[(y + 30) * kRow + 120], &between[y * 512], 480);
  Bytes got(kRow * kRows);
  CUDA_MEMCPY2D down = {};
  down.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  down.srcArray = array;
  down.dstMemoryType = CU_MEMORYTYPE_HOST;
  down.dstHost = got.data();
  down.dstPitch = kRow;
  down.WidthInBytes = kRow;
  down.Height = kRows;
  CHECK_CU(cuMemcpy2D(&down));
  check::Compare("planes", got, want);

  // Boxes that exceed the array.
  down.srcXInBytes = 4;
  EXPECT_ERROR_CU(cuMemcpy2D(&down));
  down.srcXInBytes = 0;
  down.srcY = 1;
  EXPECT_ERROR_CU(cuMemcpy2D(&down));
  CHECK_CU(cuMemFree(memory));
  CHECK_CU(cuArrayDestroy(array));
}

void Volumes() {
  constexpr std::size_t kRow = 33 * 8, kRows = 21, kSlices = 13;
  const CUarray a = Make(33, kRows, kSlices, CU_AD_FORMAT_UNSIGNED_INT32, 2);
  const CUarray layers = Make(33, kRows, kSlices, CU_AD_FORMAT_HALF, 4, CUDA_ARRAY3D_LAYERED);
  const Bytes host = Pattern(kRow * kRows * kSlices, 3);
  CUDA_MEMCPY3D up = {};
  up.srcMemoryType = CU_MEMORYTYPE_HOST;
  up.srcHost = host.data();
  up.srcPitch = kRow;
  up.srcHeight = kRows;
  up.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  up.dstArray = a;
  up.WidthInBytes = kRow;
  up.Height = kRows;
  up.Depth = kSlices;
  CHECK_CU(cuMemcpy3D(&up));
  up.dstArray = layers;
  CHECK_CU(cuMemcpy3D(&up));
  // A box of one array into another place of the other array.
  CUDA_MEMCPY3D across = {};
  across.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  across.srcArray = a;
  across.srcXInBytes = 16;
  across.srcY = 3;
  across.srcZ = 2;
  across.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  across.dstArray = layers;
  across.dstXInBytes = 80;
  across.dstY = 1;
  across.dstZ = 5;
  across.WidthInBytes = 160;
  across.Height = 17;
  across.Depth = 8;
  CHECK_CU(cuMemcpy3D(&across));
  Bytes want = host;
  for (std::size_t z = 0; z < 8; ++z)
    for (std::size_t y = 0; y < 17; ++y)
      std::memcpy(&want[((z + 5) * kRows + y + 1) * kRow + 80],
                  &host[((z + 2) * kRows + y + 3) * kRow + 16], 160);
  Bytes got(host.size());
  CUDA_MEMCPY3D down = {};
  down.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  down.srcArray = layers;
  down.dstMemoryType = CU_MEMORYTYPE_HOST;
  down.dstHost = got.data();
  down.dstPitch = kRow;
  down.dstHeight = kRows;
  down.WidthInBytes = kRow;
  down.Height = kRows;
  down.Depth = kSlices;
  CHECK_CU(cuMemcpy3D(&down));
  check::Compare("volumes", got, want);
  CHECK_CU(cuArrayDestroy(a));
  CHECK_CU(cuArrayDestroy(layers));
}

void Large() {
  constexpr std::size_t kRow = 2048 * 16, kRows = 700;  // 21.9 MiB
  const CUarray array = Make(2048, kRows, 0, CU_AD_FORMAT_FLOAT, 4);
  const Bytes host = Pattern(kRow * kRows, 4);
  Bytes got(kRow * kRows);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host.data();
  copy.srcPitch = kRow;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = kRow;
  copy.Height = kRows;
  CHECK_CU(cuMemcpy2D(&copy));
  CUDA_MEMCPY2D back = {};
  back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  back.srcArray = array;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = got.data();
  back.dstPitch = kRow;
  back.WidthInBytes = kRow;
  back.Height = kRows;
  CHECK_CU(cuMemcpy2D(&back));
  check::Compare("large", got, host);
  CHECK_CU(cuArrayDestroy(array));
}

void Refusals() {
  CUDA_ARRAY3D_DESCRIPTOR description = {};
  description.Format = CU_AD_FORMAT_FLOAT;
  description.NumChannels = 1;
  CUarray array = nullptr;
  EXPECT_ERROR_CU(cuArray3DCreate(&array, &description));
  description.Width = 16;
  description.Height = 16;
  description.NumChannels = 3;
  EXPECT_ERROR_CU(cuArray3DCreate(&array, &description));
  description.NumChannels = 1;
  description.Depth = 5;
  description.Flags = CUDA_ARRAY3D_CUBEMAP;
  EXPECT_ERROR_CU(cuArray3DCreate(&array, &description));
  description.Depth = 0;
  description.Flags = 0;
  CUmipmappedArray mipmap = nullptr;
  CHECK_CU(cuMipmappedArrayCreate(&mipmap, &description, 3));
  CUarray level = nullptr, again = nullptr;
  CHECK_CU(cuMipmappedArrayGetLevel(&level, mipmap, 2));
  CHECK_CU(cuMipmappedArrayGetLevel(&again, mipmap, 2));
  REQUIRE(cuMipmappedArrayGetLevel(&again, mipmap, 3) != CUDA_SUCCESS);
  CUDA_ARRAY_DESCRIPTOR flat = {};
  CHECK_CU(cuArrayGetDescriptor(&flat, level));
  REQUIRE(flat.Width == 4 && flat.Height == 4);
  CHECK_CU(cuMipmappedArrayDestroy(mipmap));
}

int main() {
  check::UsePrimaryContext();
  Lines();
  Planes();
  Volumes();
  Large();
  Refusals();
  CHECK_CU(cuDevicePrimaryCtxRelease(0));
  return check::Ok();
}
