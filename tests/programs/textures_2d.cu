// Two-dimensional textures on arrays: point and linear filters, every address mode, both kinds of
// coordinates, integers as they are and as fractions, gathering, and queries of the objects.
#include <string>

#include "textures.h"

constexpr int kSide = 48;  // samples in each direction

__global__ void Sample(cudaTextureObject_t texture, float x0, float y0, float step, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y;
  if (i < kSide) out[j * kSide + i] = tex2D<float>(texture, x0 + i * step, y0 + j * step);
}

__global__ void ReadBytes(cudaTextureObject_t as_bytes, cudaTextureObject_t as_fractions,
                          uchar4* bytes, float4* fractions) {
  const int x = threadIdx.x, y = threadIdx.y;
  bytes[y * blockDim.x + x] = tex2D<uchar4>(as_bytes, x + 0.5f, y + 0.5f);
  fractions[y * blockDim.x + x] = tex2D<float4>(as_fractions, x + 0.5f, y + 0.5f);
}

__global__ void ReadShorts(cudaTextureObject_t texture, float2* out) {
  out[threadIdx.x] = tex2D<float2>(texture, threadIdx.x * 0.5f + 0.5f, 0.5f);
}

__global__ void Gather(cudaTextureObject_t texture, int4* out) {
  out[threadIdx.y * blockDim.x + threadIdx.x] =
      tex2Dgather<int4>(texture, threadIdx.x + 1.0f, threadIdx.y + 1.0f, 1);
}

void Filters() {
  textures::Image image{16, 8, {}};
  for (int i = 0; i < image.width * image.height; ++i)
    image.texels.push_back(static_cast<float>((i * 37) % 101));
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array = nullptr;
  CHECK(cudaMallocArray(&array, &format, image.width, image.height));
  CHECK(cudaMemcpy2DToArray(array, 0, 0, image.texels.data(), image.width * sizeof(float),
                            image.width * sizeof(float), image.height, cudaMemcpyHostToDevice));
  float* out = check::Zeroed<float>(kSide * kSide);
  const struct {
    const char* name;
    cudaTextureAddressMode mode;
    bool normalized;
  } kCases[] = {{"clamp", cudaAddressModeClamp, false},
                {"border", cudaAddressModeBorder, false},
                {"clamp normalised", cudaAddressModeClamp, true},
                {"border normalised", cudaAddressModeBorder, true},
                {"wrap", cudaAddressModeWrap, true},
                {"mirror", cudaAddressModeMirror, true}};
  for (const auto& c : kCases) {
    for (const cudaTextureFilterMode filter : {cudaFilterModePoint, cudaFilterModeLinear}) {
      cudaTextureDesc description =
          textures::Describe(c.mode, filter, c.normalized, cudaReadModeElementType);
      description.borderColor[0] = 64;
      const cudaTextureObject_t texture = textures::OfArray(array, description);
      // From outside over the whole image to outside again, by eighths of a texel. Never exactly
      // between two texels, and exact when filtered.
      const float x0 = c.normalized ? -0.3359375f : -5.375f;
      const float y0 = c.normalized ? -0.546875f : -4.375f;
      const float step = c.normalized ? 0.03125f : 0.5f;
      Sample<<<dim3(2, kSide), 32>>>(texture, x0, y0, step, out);
      CHECK(cudaGetLastError());
      std::vector<float> want;
      for (int j = 0; j < kSide; ++j)
        for (int i = 0; i < kSide; ++i)
          want.push_back(image.Read(x0 + i * step, y0 + j * step, description));
      const std::string name =
          std::string(c.name) + (filter == cudaFilterModePoint ? ", point" : ", linear");
      check::Compare(name.c_str(), check::Download(out, kSide * kSide), want);
      CHECK(cudaDestroyTextureObject(texture));
    }
  }
  CHECK(cudaFree(out));
  CHECK(cudaFreeArray(array));
}

void Integers() {
  constexpr int kWidth = 8, kHeight = 4;
  std::vector<uchar4> bytes;
  std::vector<float4> fractions;
  for (int i = 0; i < kWidth * kHeight; ++i) {
    const auto bit = [i](int b) { return static_cast<unsigned char>(i >> b & 1 ? 255 : 0); };
    bytes.push_back(make_uchar4(bit(0), bit(1), bit(2), bit(3)));
    fractions.push_back(make_float4(i & 1, i >> 1 & 1, i >> 2 & 1, i >> 3 & 1));
  }
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<uchar4>();
  cudaArray_t array = nullptr;
  CHECK(cudaMallocArray(&array, &format, kWidth, kHeight));
  CHECK(cudaMemcpy2DToArray(array, 0, 0, bytes.data(), kWidth * 4, kWidth * 4, kHeight,
                            cudaMemcpyHostToDevice));
  const cudaTextureObject_t as_bytes =
      textures::OfArray(array, textures::Describe(cudaAddressModeClamp, cudaFilterModePoint, false,
                                                  cudaReadModeElementType));
  const cudaTextureObject_t as_fractions =
      textures::OfArray(array, textures::Describe(cudaAddressModeClamp, cudaFilterModePoint, false,
                                                  cudaReadModeNormalizedFloat));
  uchar4* byte_out = check::Zeroed<uchar4>(bytes.size());
  float4* fraction_out = check::Zeroed<float4>(bytes.size());
  ReadBytes<<<1, dim3(kWidth, kHeight)>>>(as_bytes, as_fractions, byte_out, fraction_out);
  CHECK(cudaGetLastError());
  check::Compare("bytes", check::Download(byte_out, bytes.size()), bytes);
  check::Compare("fractions", check::Download(fraction_out, bytes.size()), fractions);
  CHECK(cudaDestroyTextureObject(as_bytes));
  CHECK(cudaDestroyTextureObject(as_fractions));
  CHECK(cudaFree(byte_out));
  CHECK(cudaFree(fraction_out));
  CHECK(cudaFreeArray(array));

  // Signed fractions. The filter is halfway between two values that are equal or differ only in
  // sign, because devices filter with fewer bits than a float has.
  const std::vector<short2> shorts{
      {32767, -32767}, {-32767, 32767}, {32767, 32767}, {-32767, -32767}};
  const cudaChannelFormatDesc pairs = cudaCreateChannelDesc<short2>();
  CHECK(cudaMallocArray(&array, &pairs, 4, 1));
  CHECK(cudaMemcpy2DToArray(array, 0, 0, shorts.data(), 16, 16, 1, cudaMemcpyHostToDevice));
  const cudaTextureObject_t texture =
      textures::OfArray(array, textures::Describe(cudaAddressModeClamp, cudaFilterModeLinear, false,
                                                  cudaReadModeNormalizedFloat));
  float2* out = check::Zeroed<float2>(8);
  ReadShorts<<<1, 8>>>(texture, out);
  CHECK(cudaGetLastError());
  const std::vector<float2> want{{1, -1}, {0, 0}, {-1, 1},  {0, 1},
                                 {1, 1},  {0, 0}, {-1, -1}, {-1, -1}};
  check::Compare("signed fractions", check::Download(out, 8), want);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFree(out));
  CHECK(cudaFreeArray(array));
}

void Gathering() {
  constexpr int kWidth = 5, kHeight = 4;
  std::vector<int2> texels;
  for (int i = 0; i < kWidth * kHeight; ++i) texels.push_back(make_int2(i, 1000 - i));
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<int2>();
  cudaArray_t array = nullptr;
  CHECK(cudaMallocArray(&array, &format, kWidth, kHeight, cudaArrayTextureGather));
  CHECK(cudaMemcpy2DToArray(array, 0, 0, texels.data(), kWidth * 8, kWidth * 8, kHeight,
                            cudaMemcpyHostToDevice));
  const cudaTextureObject_t texture =
      textures::OfArray(array, textures::Describe(cudaAddressModeClamp, cudaFilterModePoint, false,
                                                  cudaReadModeElementType));
  int4* out = check::Zeroed<int4>(12);
  Gather<<<1, dim3(4, 3)>>>(texture, out);
  CHECK(cudaGetLastError());
  std::vector<int4> want;
  for (int y = 0; y < 3; ++y) {
    for (int x = 0; x < 4; ++x) {
      const auto at = [&](int dx, int dy) { return texels[(y + dy) * kWidth + x + dx].y; };
      want.push_back(make_int4(at(0, 1), at(1, 1), at(1, 0), at(0, 0)));
    }
  }
  check::Compare("gather", check::Download(out, 12), want);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFree(out));
  CHECK(cudaFreeArray(array));
}

void Questions() {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<ushort4>();
  cudaArray_t array = nullptr;
  CHECK(cudaMallocArray(&array, &format, 20, 30, cudaArraySurfaceLoadStore));
  cudaChannelFormatDesc got_format = {};
  cudaExtent extent = {};
  unsigned int flags = 0;
  CHECK(cudaArrayGetInfo(&got_format, &extent, &flags, array));
  std::printf("array: %d %d %d %d bits of kind %d, %zu x %zu x %zu, flags %u\n", got_format.x,
              got_format.y, got_format.z, got_format.w, static_cast<int>(got_format.f),
              extent.width, extent.height, extent.depth, flags);
  cudaTextureDesc description =
      textures::Describe(cudaAddressModeMirror, cudaFilterModePoint, true, cudaReadModeElementType);
  const cudaTextureObject_t texture = textures::OfArray(array, description);
  cudaResourceDesc resource = {};
  CHECK(cudaGetTextureObjectResourceDesc(&resource, texture));
  REQUIRE(resource.resType == cudaResourceTypeArray && resource.res.array.array == array);
  cudaTextureDesc got = {};
  CHECK(cudaGetTextureObjectTextureDesc(&got, texture));
  REQUIRE(got.addressMode[0] == cudaAddressModeMirror && got.normalizedCoords == 1 &&
          got.filterMode == cudaFilterModePoint && got.readMode == cudaReadModeElementType);
  const cudaSurfaceObject_t surface = textures::SurfaceOf(array);
  CHECK(cudaGetSurfaceObjectResourceDesc(&resource, surface));
  REQUIRE(resource.res.array.array == array);
  CHECK(cudaDestroySurfaceObject(surface));
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(array));

  // Integers cannot be filtered.
  CHECK(cudaMallocArray(&array, &format, 4, 4));
  cudaTextureObject_t none = 0;
  resource.res.array.array = array;
  description.filterMode = cudaFilterModeLinear;
  REQUIRE(cudaCreateTextureObject(&none, &resource, &description, nullptr) != cudaSuccess);
  cudaGetLastError();
  CHECK(cudaFreeArray(array));
}

int main() {
  Filters();
  Integers();
  Gathering();
  Questions();
  return check::Ok();
}
