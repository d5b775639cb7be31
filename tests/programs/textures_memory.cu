// Textures on ordinary device memory: linear, of several types, and pitched in two dimensions.
#include "textures.h"

template <typename T>
__global__ void Fetch(cudaTextureObject_t texture, int first, int count, T* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = tex1Dfetch<T>(texture, first + i);
}

__global__ void Sample(cudaTextureObject_t texture, int width, float* out) {
  const int x = threadIdx.x, y = blockIdx.x;
  out[y * width + x] = tex2D<float>(texture, x + 1.0f, y + 1.0f);
}

template <typename T>
cudaTextureObject_t Linear(T* memory, std::size_t count, cudaTextureReadMode read) {
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = memory;
  resource.res.linear.desc = cudaCreateChannelDesc<T>();
  resource.res.linear.sizeInBytes = count * sizeof(T);
  const cudaTextureDesc description =
      textures::Describe(cudaAddressModeClamp, cudaFilterModePoint, false, read);
  cudaTextureObject_t texture = 0;
  CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  return texture;
}

template <typename T>
void Whole(const char* name, const std::vector<T>& host) {
  T* const memory = check::Upload(host);
  T* const out = check::Zeroed<T>(host.size());
  const cudaTextureObject_t texture = Linear(memory, host.size(), cudaReadModeElementType);
  const int count = static_cast<int>(host.size());
  Fetch<T><<<(count + 127) / 128, 128>>>(texture, 0, count, out);
  CHECK(cudaGetLastError());
  check::Compare(name, check::Download(out, host.size()), host);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFree(memory));
  CHECK(cudaFree(out));
}

int main() {
  check::Random random(5);
  std::vector<float> floats;
  std::vector<int4> vectors;
  std::vector<unsigned char> bytes;
  std::vector<short2> shorts;
  for (int i = 0; i < 5000; ++i) {
    floats.push_back(random.NextFloat());
    vectors.push_back(make_int4(i, -i, static_cast<int>(random.Next32()), 7));
    bytes.push_back(static_cast<unsigned char>(random.Next32()));
    shorts.push_back(make_short2(static_cast<short>(random.Next32()), static_cast<short>(-i)));
  }
  Whole("floats", floats);
  Whole("vectors", vectors);
  Whole("bytes", bytes);
  Whole("shorts", shorts);

  // Reads outside the texture return zero.
  float* const memory = check::Upload(floats);
  float* const out = check::Zeroed<float>(4096);
  const cudaTextureObject_t part = Linear(memory, 100, cudaReadModeElementType);
  Fetch<float><<<2, 128>>>(part, -50, 256, out);
  CHECK(cudaGetLastError());
  std::vector<float> want(256, 0.0f);
  std::copy(floats.begin(), floats.begin() + 100, want.begin() + 50);
  check::Compare("outside", check::Download(out, 256), want);
  // The memory of the texture changes between launches.
  CHECK(cudaMemset(memory, 0, 40 * sizeof(float)));
  Fetch<float><<<1, 128>>>(part, 0, 100, out);
  CHECK(cudaGetLastError());
  want.assign(floats.begin(), floats.begin() + 100);
  std::fill_n(want.begin(), 40, 0.0f);
  check::Compare("changed", check::Download(out, 100), want);
  CHECK(cudaDestroyTextureObject(part));

  // A texture may be larger than the memory in which it begins.
  const std::size_t beyond = (64 << 20) / sizeof(float);
  const cudaTextureObject_t larger = Linear(memory, beyond, cudaReadModeElementType);
  Fetch<float><<<2, 128>>>(larger, 100, 200, out);
  CHECK(cudaGetLastError());
  want.assign(floats.begin() + 100, floats.begin() + 300);
  REQUIRE(check::Download(out, 200) == want);
  CHECK(cudaDestroyTextureObject(larger));

  textures::Image image{50, 20, {}};
  for (int i = 0; i < image.width * image.height; ++i)
    image.texels.push_back(static_cast<float>(i % 91 * 4));
  void* pitched = nullptr;
  std::size_t pitch = 0;
  CHECK(cudaMallocPitch(&pitched, &pitch, image.width * sizeof(float), image.height));
  CHECK(cudaMemcpy2D(pitched, pitch, image.texels.data(), image.width * sizeof(float),
                     image.width * sizeof(float), image.height, cudaMemcpyHostToDevice));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypePitch2D;
  resource.res.pitch2D.devPtr = pitched;
  resource.res.pitch2D.desc = cudaCreateChannelDesc<float>();
  resource.res.pitch2D.width = image.width;
  resource.res.pitch2D.height = image.height;
  resource.res.pitch2D.pitchInBytes = pitch;
  const cudaTextureDesc description = textures::Describe(cudaAddressModeClamp, cudaFilterModeLinear,
                                                         false, cudaReadModeElementType);
  cudaTextureObject_t texture = 0;
  CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  Sample<<<image.height, image.width>>>(texture, image.width, out);
  CHECK(cudaGetLastError());
  want.clear();
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x)
      want.push_back(image.Read(static_cast<float>(x + 1), static_cast<float>(y + 1), description));
  check::Compare("pitched", check::Download(out, want.size()), want);
  CHECK(cudaDestroyTextureObject(texture));

  // Its last rows lie beyond the memory.
  resource.res.pitch2D.height = 60000;
  CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  CHECK(cudaMemset(out, 0, want.size() * sizeof(float)));
  Sample<<<image.height - 1, image.width>>>(texture, image.width, out);
  CHECK(cudaGetLastError());
  want.resize(static_cast<std::size_t>(image.height - 1) * image.width);
  REQUIRE(check::Download(out, want.size()) == want);
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFree(pitched));
  CHECK(cudaFree(memory));
  CHECK(cudaFree(out));

  cudaDeviceProp properties = {};
  CHECK(cudaGetDeviceProperties(&properties, 0));
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
  std::size_t width = 0;
  CHECK(cudaDeviceGetTexture1DLinearMaxWidth(&width, &format, 0));
  REQUIRE(width >= static_cast<std::size_t>(1) << 24);
  return check::Ok();
}
