// Unusual arguments of calls for arrays, textures and tensor maps, where the driver is lenient or
// strict in a way that its documentation does not tell (seen with driver 580 on an H100).
#include "check_driver.h"

using Bytes = std::vector<unsigned char>;

constexpr std::size_t kRow = 256, kRows = 32;

CUDA_ARRAY3D_DESCRIPTOR Words(std::size_t width, std::size_t height, std::size_t depth) {
  CUDA_ARRAY3D_DESCRIPTOR shape = {};
  shape.Width = width;
  shape.Height = height;
  shape.Depth = depth;
  shape.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  shape.NumChannels = 1;
  return shape;
}

CUarray Make(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  CUarray array = nullptr;
  CHECK_CU(cuArray3DCreate(&array, &shape));
  return array;
}

Bytes Count() {
  Bytes bytes(kRow * kRows);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 7 / 3);
  return bytes;
}

CUDA_MEMCPY2D Whole(CUarray array, void* host) {
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host;
  copy.dstPitch = copy.WidthInBytes = kRow;
  copy.Height = kRows;
  return copy;
}

// Copies may begin and end inside of texels.
void PartsOfTexels() {
  const CUarray array = Make(Words(kRow / 4, kRows, 0));
  const Bytes host = Count();
  CUDA_MEMCPY2D up = {};
  up.srcMemoryType = CU_MEMORYTYPE_HOST;
  up.srcHost = host.data();
  up.srcPitch = kRow;
  up.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  up.dstArray = array;
  up.WidthInBytes = kRow;
  up.Height = kRows;
  CHECK_CU(cuMemcpy2D(&up));
  Bytes want = host;
  up.srcXInBytes = 0;
  up.dstXInBytes = 1;
  up.dstY = 2;
  up.WidthInBytes = 254;
  up.Height = 13;
  CHECK_CU(cuMemcpy2D(&up));
  for (std::size_t y = 0; y < 13; ++y) std::memcpy(&want[(y + 2) * kRow + 1], &host[y * kRow], 254);
  Bytes got(want.size());
  const CUDA_MEMCPY2D down = Whole(array, got.data());
  CHECK_CU(cuMemcpy2D(&down));
  check::Compare("parts of texels", got, want);
  up.WidthInBytes = 256;
  EXPECT_CU(cuMemcpy2D(&up), CUDA_ERROR_INVALID_VALUE);

  // A range of bytes lies in the first row.
  CUdeviceptr memory = 0;
  CHECK_CU(cuMemAlloc(&memory, 1024));
  CHECK_CU(cuMemcpyAtoD(memory, array, 1, 255));
  CHECK_CU(cuMemcpyDtoH(got.data(), memory, 255));
  REQUIRE(std::memcmp(got.data(), &want[1], 255) == 0);
  EXPECT_CU(cuMemcpyAtoD(memory, array, 2, 255), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemcpyDtoA(array, 4, memory, 256), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemcpyHtoA(array, 64, host.data(), 256), CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuMemcpy2D(&down));
  REQUIRE(got == want);
  CHECK_CU(cuMemFree(memory));
  CHECK_CU(cuArrayDestroy(array));
}

void Boxes() {
  const Bytes host = Count();
  Bytes want(host.size()), got(host.size());
  CUdeviceptr memory = 0;
  CHECK_CU(cuMemAlloc(&memory, host.size()));
  CHECK_CU(cuMemsetD8(memory, 0, host.size()));
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host.data();
  copy.srcPitch = kRow;
  copy.srcHeight = 16;
  copy.srcY = 12;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = memory;
  copy.dstPitch = kRow;
  copy.WidthInBytes = kRow;
  copy.Height = 5;
  copy.Depth = 1;
  // The rows must lie in the height that is given, also of a single slice.
  EXPECT_CU(cuMemcpy3D(&copy), CUDA_ERROR_INVALID_VALUE);
  copy.Height = 4;
  // Levels of detail of memory are ignored.
  copy.srcLOD = 1;
  CHECK_CU(cuMemcpy3D(&copy));
  std::memcpy(want.data(), &host[12 * kRow], 4 * kRow);
  CHECK_CU(cuMemcpyDtoH(got.data(), memory, got.size()));
  check::Compare("boxes", got, want);
  copy.srcLOD = 0;
  copy.dstHeight = 3;
  EXPECT_CU(cuMemcpy3D(&copy), CUDA_ERROR_INVALID_VALUE);

  // The hints of a batch are checked, also where they are not used.
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr to = memory, from = memory + 4096;
  std::size_t bytes = 64, first = 0;
  CUmemcpyAttributes attributes = {};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  attributes.srcLocHint = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CHECK_CU(cuMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &first, 1, stream));
  attributes.srcLocHint.id = -1;
  EXPECT_CU(cuMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &first, 1, stream),
            CUDA_ERROR_INVALID_VALUE);
  attributes.srcLocHint = {static_cast<CUmemLocationType>(100), 0};
  EXPECT_CU(cuMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &first, 1, stream),
            CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuStreamDestroy(stream));
  CHECK_CU(cuMemFree(memory));
}

void Descriptions() {
  CUarray array = nullptr;
  CUmipmappedArray mipmap = nullptr;
  // What makes no sense is an invalid value, also with formats and flags for graphics.
  CUDA_ARRAY3D_DESCRIPTOR shape = Words(64, 1, 0);
  shape.Format = static_cast<CUarray_format>(4);
  EXPECT_CU(cuArray3DCreate(&array, &shape), CUDA_ERROR_INVALID_VALUE);
  shape.Format = CU_AD_FORMAT_BC7_UNORM;
  EXPECT_CU(cuArray3DCreate(&array, &shape), CUDA_ERROR_INVALID_VALUE);
  shape.Format = CU_AD_FORMAT_UNORM_INT16X4;
  shape.NumChannels = 2;
  EXPECT_CU(cuArray3DCreate(&array, &shape), CUDA_ERROR_INVALID_VALUE);
  shape.NumChannels = 4;
  array = Make(shape);
  CUDA_ARRAY3D_DESCRIPTOR fractions = {};
  CHECK_CU(cuArray3DGetDescriptor(&fractions, array));
  REQUIRE(fractions.Format == shape.Format && fractions.NumChannels == 4);
  CHECK_CU(cuArrayDestroy(array));
  array = nullptr;
  shape = Words(100, 64, 6);
  shape.Flags = CUDA_ARRAY3D_COLOR_ATTACHMENT;
  EXPECT_CU(cuMipmappedArrayCreate(&mipmap, &shape, 1), CUDA_ERROR_INVALID_VALUE);
  shape = Words(100, 0, 0);
  shape.Flags = CUDA_ARRAY3D_COLOR_ATTACHMENT;
  EXPECT_CU(cuMipmappedArrayCreate(&mipmap, &shape, 7), CUDA_ERROR_INVALID_VALUE);
  shape = Words(100, 8, 0);
  shape.Flags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SPARSE;
  EXPECT_CU(cuArray3DCreate(&array, &shape), CUDA_ERROR_INVALID_VALUE);

  shape = Words(64, 8, 0);
  shape.Flags = CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
  array = Make(shape);
  CUDA_ARRAY3D_DESCRIPTOR back = {};
  CHECK_CU(cuArray3DGetDescriptor(&back, array));
  REQUIRE(back.Width == 64 && back.Height == 8 && back.Flags == shape.Flags);
  CHECK_CU(cuArrayDestroy(array));

  // A level can be destroyed by itself.
  shape = Words(8, 8, 0);
  CHECK_CU(cuMipmappedArrayCreate(&mipmap, &shape, 2));
  CHECK_CU(cuMipmappedArrayGetLevel(&array, mipmap, 1));
  CHECK_CU(cuArrayDestroy(array));
  CHECK_CU(cuMipmappedArrayDestroy(mipmap));
}

bool Untouched(const void* bytes, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i)
    if (static_cast<const unsigned char*>(bytes)[i] != 0xa5) return false;
  return true;
}

// Makes a texture and reads back what it was made of.
CUDA_RESOURCE_DESC Texture(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& sampling,
                           const CUDA_RESOURCE_VIEW_DESC* view, CUDA_TEXTURE_DESC* sampling_back) {
  CUtexObject texture = 0;
  CHECK_CU(cuTexObjectCreate(&texture, &resource, &sampling, view));
  CUDA_RESOURCE_DESC back = {};
  CHECK_CU(cuTexObjectGetResourceDesc(&back, texture));
  std::memset(sampling_back, 0xa5, sizeof *sampling_back);
  CHECK_CU(cuTexObjectGetTextureDesc(sampling_back, texture));
  REQUIRE(Untouched(sampling_back->borderColor, sizeof sampling_back->borderColor));
  REQUIRE(Untouched(sampling_back->reserved, sizeof sampling_back->reserved));
  CUDA_RESOURCE_VIEW_DESC none;
  std::memset(&none, 0xa5, sizeof none);
  CHECK_CU(cuTexObjectGetResourceViewDesc(&none, texture));
  REQUIRE(Untouched(&none, sizeof none));
  CHECK_CU(cuTexObjectDestroy(texture));
  return back;
}

void Textures() {
  CUDA_ARRAY3D_DESCRIPTOR shape = Words(32, 32, 0);
  shape.Format = CU_AD_FORMAT_FLOAT;
  const CUarray array = Make(shape);
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUDA_TEXTURE_DESC sampling = {}, back;
  sampling.addressMode[0] = CU_TR_ADDRESS_MODE_MIRROR;
  sampling.addressMode[1] = CU_TR_ADDRESS_MODE_BORDER;
  sampling.addressMode[2] = static_cast<CUaddress_mode>(4);
  sampling.flags = 8;
  sampling.borderColor[0] = 1;
  Texture(resource, sampling, nullptr, &back);
  REQUIRE(back.addressMode[0] == CU_TR_ADDRESS_MODE_MIRROR);
  REQUIRE(back.addressMode[1] == CU_TR_ADDRESS_MODE_BORDER);
  REQUIRE(back.addressMode[2] == CU_TR_ADDRESS_MODE_CLAMP && back.flags == 8);
  CUtexObject texture = 0;
  sampling.addressMode[1] = static_cast<CUaddress_mode>(4);
  EXPECT_CU(cuTexObjectCreate(&texture, &resource, &sampling, nullptr), CUDA_ERROR_INVALID_VALUE);
  sampling = {};
  sampling.flags = 128;
  EXPECT_CU(cuTexObjectCreate(&texture, &resource, &sampling, nullptr), CUDA_ERROR_INVALID_VALUE);
  // A view without a format is a view, too.
  sampling.flags = 0;
  CUDA_RESOURCE_VIEW_DESC view = {};
  view.width = view.height = 32;
  view.lastLayer = 2;
  EXPECT_CU(cuTexObjectCreate(&texture, &resource, &sampling, &view), CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuArrayDestroy(array));

  CUdeviceptr memory = 0;
  CHECK_CU(cuMemAlloc(&memory, 65536));
  resource = {};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear = {memory, CU_AD_FORMAT_UNSIGNED_INT8, 1, 4096};
  view.format = CU_RES_VIEW_FORMAT_FLOAT_4X32;
  sampling.addressMode[1] = static_cast<CUaddress_mode>(-1);
  Texture(resource, sampling, &view, &back);
  REQUIRE(back.addressMode[1] == CU_TR_ADDRESS_MODE_CLAMP);

  sampling.addressMode[1] = CU_TR_ADDRESS_MODE_CLAMP;
  resource = {};
  resource.resType = CU_RESOURCE_TYPE_PITCH2D;
  resource.res.pitch2D = {memory, CU_AD_FORMAT_UNSIGNED_INT8, 1, 8, 1, 512};
  CUDA_RESOURCE_DESC given = Texture(resource, sampling, nullptr, &back);
  REQUIRE(given.resType == CU_RESOURCE_TYPE_PITCH2D && given.res.pitch2D.width == 8);
  REQUIRE(given.res.pitch2D.height == 1 && given.res.pitch2D.pitchInBytes == 0);
  resource.res.pitch2D.height = 0;
  given = Texture(resource, sampling, nullptr, &back);
  REQUIRE(given.resType == CU_RESOURCE_TYPE_LINEAR && given.res.linear.devPtr == memory);
  REQUIRE(given.res.linear.sizeInBytes == 512 && given.res.linear.numChannels == 1);
  CHECK_CU(cuMemFree(memory));
}

void TensorMaps() {
  alignas(128) unsigned char space[256] = {};
  // cuda.h asks for 64 bytes, and the type has an alignment of 128 since CUDA 13. The driver asks
  // for neither.
  CUtensorMap* const map = reinterpret_cast<CUtensorMap*>(space + 64);
  CUtensorMap* const odd = reinterpret_cast<CUtensorMap*>(space + 8);
  CUdeviceptr memory = 0;
  CHECK_CU(cuMemAlloc(&memory, 65536));
  void* const address = reinterpret_cast<void*>(memory);
  const cuuint64_t sizes[5] = {16, 8, 8, 1, 1}, strides[4] = {64, 512, 4096, 4096};
  const cuuint32_t box[5] = {8, 8, 1, 1, 1}, steps[5] = {1, 1, 1, 1, 1};
  const auto tiled = [&](CUtensorMap* to) {
    return cuTensorMapEncodeTiled(to, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, address, sizes, strides,
                                  box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                  CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CHECK_CU(tiled(map));
  const Bytes made(space + 64, space + 192);
  CHECK_CU(tiled(odd));
  REQUIRE(std::memcmp(space + 8, made.data(), made.size()) == 0);
  CHECK_CU(cuTensorMapReplaceAddress(odd, reinterpret_cast<void*>(memory + 256)));
  REQUIRE(std::memcmp(space + 8, made.data(), made.size()) != 0);
  CHECK_CU(cuTensorMapReplaceAddress(odd, address));
  REQUIRE(std::memcmp(space + 8, made.data(), made.size()) == 0);

  // A map of rank 6 is cleared, and a map that has a size of 0 is left as it is.
  const auto refused = [&](cuuint32_t rank, const cuuint64_t* size) {
    const cuuint32_t ones[6] = {1, 1, 1, 1, 1, 1};
    const cuuint64_t far[5] = {64, 512, 4096, 4096, 4096};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank, address, size, far,
                                  ones, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                  CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  const cuuint64_t many[6] = {16, 8, 8, 1, 1, 1}, none[6] = {16, 0, 8, 1, 1, 1};
  std::memset(space + 64, 0xa5, 128);
  EXPECT_CU(refused(2, none), CUDA_ERROR_INVALID_VALUE);
  REQUIRE(Untouched(space + 64, 128));
  EXPECT_CU(refused(6, many), CUDA_ERROR_INVALID_VALUE);
  REQUIRE(Bytes(space + 64, space + 192) == Bytes(128));
  CHECK_CU(cuMemFree(memory));
}

int main() {
  check::UsePrimaryContext();
  PartsOfTexels();
  Boxes();
  Descriptions();
  Textures();
  TensorMaps();
  CHECK_CU(cuDevicePrimaryCtxRelease(0));
  return check::Ok();
}
