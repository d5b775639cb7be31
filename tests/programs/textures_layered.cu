// Textures of three dimensions, layers, cube faces and levels.
#include "textures.h"

__global__ void ReadVolume(cudaTextureObject_t texture, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int x = i % 8, y = i / 8 % 4, z = i / 32;
  out[i] = tex3D<float>(texture, x + 0.5f, y + 0.75f, z + 1.0f);
}

__global__ void ReadLayers(cudaTextureObject_t texture, float* out) {
  const int x = threadIdx.x, y = threadIdx.y, layer = blockIdx.x;
  out[(layer * blockDim.y + y) * blockDim.x + x] =
      tex2DLayered<float>(texture, x + 0.25f, y + 0.25f, layer);
}

__global__ void ReadLines(cudaTextureObject_t texture, int* out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] =
      tex1DLayered<int>(texture, threadIdx.x + 0.5f, blockIdx.x);
}

__global__ void ReadCube(cudaTextureObject_t texture, const float4* directions, float* out) {
  const float4 d = directions[threadIdx.x];
  out[threadIdx.x] = texCubemap<float>(texture, d.x, d.y, d.z);
}

__global__ void ReadLevels(cudaTextureObject_t texture, float* out) {
  const int i = threadIdx.x;
  out[i] = tex2DLod<float>(texture, 0.5f, 0.5f, i * 0.25f);
}

__global__ void ReadGradients(cudaTextureObject_t texture, float* out) {
  const int i = threadIdx.x;
  const float step = static_cast<float>(1 << i) / 8;
  out[i] = tex2DGrad<float>(texture, 0.5f, 0.5f, make_float2(step, 0), make_float2(0, step));
}

// Copies `host` into the whole `array`.
template <typename T>
void Fill(cudaArray_t array, const std::vector<T>& host, cudaExtent extent) {
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(const_cast<T*>(host.data()), extent.width * sizeof(T),
                                    extent.width, extent.height);
  copy.dstArray = array;
  copy.extent = extent;
  copy.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&copy));
}

void Volume() {
  std::vector<float> texels(8 * 4 * 3);
  for (std::size_t i = 0; i < texels.size(); ++i) texels[i] = static_cast<float>(i % 29 * 8);
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array = nullptr;
  CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(8, 4, 3)));
  Fill(array, texels, make_cudaExtent(8, 4, 3));
  const cudaTextureObject_t texture =
      textures::OfArray(array, textures::Describe(cudaAddressModeClamp, cudaFilterModeLinear, false,
                                                  cudaReadModeElementType));
  float* out = check::Zeroed<float>(texels.size());
  ReadVolume<<<3, 32>>>(texture, out);
  CHECK(cudaGetLastError());
  const auto at = [&](int x, int y, int z) {
    return texels[(std::min(z, 2) * 4 + std::min(y, 3)) * 8 + x];
  };
  std::vector<float> want;
  for (int i = 0; i < 96; ++i) {
    const int x = i % 8, y = i / 8 % 4, z = i / 32;
    want.push_back(0.5f * (0.75f * at(x, y, z) + 0.25f * at(x, y + 1, z)) +
                   0.5f * (0.75f * at(x, y, z + 1) + 0.25f * at(x, y + 1, z + 1)));
  }
  check::Compare("volume", check::Download(out, texels.size()), want);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFree(out));
  CHECK(cudaFreeArray(array));
}

void Layers() {
  constexpr int kWidth = 8, kHeight = 4, kLayers = 5;
  std::vector<float> texels(kWidth * kHeight * kLayers);
  for (std::size_t i = 0; i < texels.size(); ++i) texels[i] = static_cast<float>(i * 3);
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array = nullptr;
  const cudaExtent extent = make_cudaExtent(kWidth, kHeight, kLayers);
  CHECK(cudaMalloc3DArray(&array, &format, extent, cudaArrayLayered));
  Fill(array, texels, extent);
  cudaTextureObject_t texture =
      textures::OfArray(array, textures::Describe(cudaAddressModeClamp, cudaFilterModePoint, false,
                                                  cudaReadModeElementType));
  float* out = check::Zeroed<float>(texels.size());
  ReadLayers<<<kLayers, dim3(kWidth, kHeight)>>>(texture, out);
  CHECK(cudaGetLastError());
  check::Compare("layers", check::Download(out, texels.size()), texels);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFree(out));
  CHECK(cudaFreeArray(array));

  std::vector<int> lines(kWidth * kLayers);
  for (std::size_t i = 0; i < lines.size(); ++i) lines[i] = static_cast<int>(i * i);
  const cudaChannelFormatDesc integers = cudaCreateChannelDesc<int>();
  CHECK(
      cudaMalloc3DArray(&array, &integers, make_cudaExtent(kWidth, 0, kLayers), cudaArrayLayered));
  Fill(array, lines, make_cudaExtent(kWidth, 1, kLayers));
  texture = textures::OfArray(array, textures::Describe(cudaAddressModeClamp, cudaFilterModePoint,
                                                        false, cudaReadModeElementType));
  int* line_out = check::Zeroed<int>(lines.size());
  ReadLines<<<kLayers, kWidth>>>(texture, line_out);
  CHECK(cudaGetLastError());
  check::Compare("lines", check::Download(line_out, lines.size()), lines);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFree(line_out));
  CHECK(cudaFreeArray(array));
}

void Cube() {
  constexpr int kSide = 4;
  std::vector<float> texels;
  for (int face = 0; face < 6; ++face)
    for (int i = 0; i < kSide * kSide; ++i) texels.push_back(static_cast<float>(face * 100 + i));
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array = nullptr;
  const cudaExtent extent = make_cudaExtent(kSide, kSide, 6);
  CHECK(cudaMalloc3DArray(&array, &format, extent, cudaArrayCubemap));
  Fill(array, texels, extent);
  const cudaTextureObject_t texture = textures::OfArray(
      array,
      textures::Describe(cudaAddressModeClamp, cudaFilterModePoint, true, cudaReadModeElementType));
  // Directions to the middle of texels: (s, t) of a face is (-0.75, 0.25) and the like.
  const std::vector<float4> directions{{1, -0.25f, 0.75f, 0},  {-1, -0.25f, -0.75f, 0},
                                       {-0.75f, 1, 0.25f, 0},  {-0.75f, -1, -0.25f, 0},
                                       {-0.75f, -0.25f, 1, 0}, {0.75f, -0.25f, -1, 0},
                                       {0.25f, 0.25f, 2, 0},   {3, 0.75f, 0.75f, 0}};
  std::vector<float> want;
  for (const float face : {0, 1, 2, 3, 4, 5}) want.push_back(face * 100 + 2 * kSide);
  // (0.125, -0.125) lies in column 2 and row 1, and (-0.25, -0.25) in column 1 and row 1.
  want.push_back(400 + 1 * kSide + 2);
  want.push_back(0 + 1 * kSide + 1);
  float4* in = check::Upload(directions);
  float* out = check::Zeroed<float>(directions.size());
  ReadCube<<<1, static_cast<unsigned>(directions.size())>>>(texture, in, out);
  CHECK(cudaGetLastError());
  check::Compare("cube", check::Download(out, directions.size()), want);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFree(in));
  CHECK(cudaFree(out));
  CHECK(cudaFreeArray(array));
}

void Levels() {
  constexpr int kLevels = 4;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaMipmappedArray_t mipmap = nullptr;
  CHECK(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(8, 8, 0), kLevels));
  for (int level = 0; level < kLevels; ++level) {
    cudaArray_t array = nullptr;
    CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, level));
    cudaExtent extent = {};
    CHECK(cudaArrayGetInfo(nullptr, &extent, nullptr, array));
    REQUIRE(extent.width == 8u >> level && extent.height == 8u >> level);
    const std::vector<float> texels(extent.width * extent.height, static_cast<float>(16 << level));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, texels.data(), extent.width * sizeof(float),
                              extent.width * sizeof(float), extent.height, cudaMemcpyHostToDevice));
  }
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeMipmappedArray;
  resource.res.mipmap.mipmap = mipmap;
  float* out = check::Zeroed<float>(16);
  for (const cudaTextureFilterMode filter : {cudaFilterModePoint, cudaFilterModeLinear}) {
    cudaTextureDesc description = textures::Describe(cudaAddressModeClamp, cudaFilterModeLinear,
                                                     true, cudaReadModeElementType);
    description.mipmapFilterMode = filter;
    description.minMipmapLevelClamp = 0.5f;
    description.maxMipmapLevelClamp = 2.75f;
    cudaTextureObject_t texture = 0;
    CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    ReadLevels<<<1, 16>>>(texture, out);
    CHECK(cudaGetLastError());
    std::vector<float> got = check::Download(out, 16), want, compared;
    for (int i = 0; i < 16; ++i) {
      const float lod = std::min(std::max(i * 0.25f, 0.5f), 2.75f);
      const int first = static_cast<int>(lod);
      const float part = lod - static_cast<float>(first);
      // Halfway between two levels a point filter may take either.
      if (filter == cudaFilterModePoint && part == 0.5f) continue;
      compared.push_back(got[i]);
      want.push_back(filter == cudaFilterModePoint
                         ? static_cast<float>(16 << (part > 0.5f ? first + 1 : first))
                         : (1 - part) * static_cast<float>(16 << first) +
                               part * static_cast<float>(32 << first));
    }
    check::Compare(filter == cudaFilterModePoint ? "levels, point" : "levels, linear", compared,
                   want);
    CHECK(cudaDestroyTextureObject(texture));
  }
  cudaTextureDesc description =
      textures::Describe(cudaAddressModeClamp, cudaFilterModePoint, true, cudaReadModeElementType);
  description.maxMipmapLevelClamp = 10;
  cudaTextureObject_t texture = 0;
  CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  ReadGradients<<<1, 4>>>(texture, out);
  CHECK(cudaGetLastError());
  check::Compare("gradients", check::Download(out, 4), std::vector<float>{16, 32, 64, 128});
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFree(out));
  CHECK(cudaFreeMipmappedArray(mipmap));
}

int main() {
  Volume();
  Layers();
  Cube();
  Levels();
  return check::Ok();
}
