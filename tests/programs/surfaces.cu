// Surfaces. Kernels write into arrays of one, two and three dimensions and of layers, read them
// back as surfaces and as textures, and access their borders.
#include "textures.h"

__global__ void WriteLine(cudaSurfaceObject_t surface, int count) {
  const int i = threadIdx.x;
  if (i < count) surf1Dwrite(make_short2(i, -i), surface, i * sizeof(short2));
}

__global__ void WritePlane(cudaSurfaceObject_t surface) {
  const int x = threadIdx.x, y = blockIdx.x;
  surf2Dwrite(static_cast<float>(y * 1000 + x), surface, x * sizeof(float), y);
}

__global__ void WriteVolume(cudaSurfaceObject_t surface) {
  const int x = threadIdx.x, y = threadIdx.y, z = blockIdx.x;
  surf3Dwrite(make_uint4(x, y, z, x * y * z), surface, x * sizeof(uint4), y, z);
}

__global__ void WriteLayers(cudaSurfaceObject_t surface) {
  const int x = threadIdx.x, y = threadIdx.y, layer = blockIdx.x;
  surf2DLayeredwrite(static_cast<unsigned char>(layer * 64 + y * 8 + x), surface, x, y, layer);
}

__global__ void Double(cudaSurfaceObject_t surface) {
  const int x = threadIdx.x, y = threadIdx.y, z = blockIdx.x;
  uint4 value;
  surf3Dread(&value, surface, x * sizeof(uint4), y, z);
  surf3Dwrite(make_uint4(2 * value.x, 2 * value.y, 2 * value.z, 2 * value.w), surface,
              x * sizeof(uint4), y, z);
}

__global__ void Borders(cudaSurfaceObject_t surface, float* zero, float* clamped) {
  const int x = static_cast<int>(threadIdx.x) - 4, y = static_cast<int>(blockIdx.x) - 2;
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  surf2Dread(&zero[at], surface, x * static_cast<int>(sizeof(float)), y, cudaBoundaryModeZero);
  surf2Dread(&clamped[at], surface, x * static_cast<int>(sizeof(float)), y, cudaBoundaryModeClamp);
  // Writes outside the surface are dropped.
  if (x < 0 || y < 0)
    surf2Dwrite(-1.0f, surface, x * static_cast<int>(sizeof(float)), y, cudaBoundaryModeZero);
}

__global__ void ReadTexture(cudaTextureObject_t texture, float* out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] =
      tex2D<float>(texture, threadIdx.x + 0.5f, blockIdx.x + 0.5f);
}

template <typename T>
cudaArray_t Make(cudaExtent extent, unsigned int flags) {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<T>();
  cudaArray_t array = nullptr;
  CHECK(cudaMalloc3DArray(&array, &format, extent, flags | cudaArraySurfaceLoadStore));
  return array;
}

template <typename T>
std::vector<T> ReadBack(cudaArray_t array, cudaExtent extent) {
  std::vector<T> host(extent.width * extent.height * extent.depth);
  cudaMemcpy3DParms copy = {};
  copy.srcArray = array;
  copy.dstPtr =
      make_cudaPitchedPtr(host.data(), extent.width * sizeof(T), extent.width, extent.height);
  copy.extent = extent;
  copy.kind = cudaMemcpyDeviceToHost;
  CHECK(cudaMemcpy3D(&copy));
  return host;
}

int main() {
  {
    const cudaArray_t array = Make<short2>(make_cudaExtent(100, 0, 0), 0);
    const cudaSurfaceObject_t surface = textures::SurfaceOf(array);
    WriteLine<<<1, 128>>>(surface, 100);
    CHECK(cudaGetLastError());
    std::vector<short2> want;
    for (int i = 0; i < 100; ++i)
      want.push_back(make_short2(static_cast<short>(i), static_cast<short>(-i)));
    check::Compare("line", ReadBack<short2>(array, make_cudaExtent(100, 1, 1)), want);
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(array));
  }
  {
    constexpr int kWidth = 70, kHeight = 30;
    const cudaArray_t array = Make<float>(make_cudaExtent(kWidth, kHeight, 0), 0);
    // DetShare clears new arrays. Natively their contents are undefined, so nothing is compared.
    const cudaSurfaceObject_t surface = textures::SurfaceOf(array);
    WritePlane<<<kHeight, kWidth>>>(surface);
    CHECK(cudaGetLastError());
    std::vector<float> plane;
    for (int y = 0; y < kHeight; ++y)
      for (int x = 0; x < kWidth; ++x) plane.push_back(static_cast<float>(y * 1000 + x));
    check::Compare("plane", ReadBack<float>(array, make_cudaExtent(kWidth, kHeight, 1)), plane);

    constexpr int kWide = kWidth + 8, kHigh = kHeight + 4;
    float* zero = check::Zeroed<float>(kWide * kHigh);
    float* clamped = check::Zeroed<float>(kWide * kHigh);
    Borders<<<kHigh, kWide>>>(surface, zero, clamped);
    CHECK(cudaGetLastError());
    std::vector<float> want_zero, want_clamped;
    for (int y = -2; y < kHeight + 2; ++y) {
      for (int x = -4; x < kWidth + 4; ++x) {
        const bool inside = x >= 0 && x < kWidth && y >= 0 && y < kHeight;
        const int cx = std::min(std::max(x, 0), kWidth - 1);
        const int cy = std::min(std::max(y, 0), kHeight - 1);
        want_zero.push_back(inside ? static_cast<float>(y * 1000 + x) : 0.0f);
        want_clamped.push_back(static_cast<float>(cy * 1000 + cx));
      }
    }
    check::Compare("zero outside", check::Download(zero, want_zero.size()), want_zero);
    check::Compare("clamped", check::Download(clamped, want_clamped.size()), want_clamped);
    check::Compare("untouched", ReadBack<float>(array, make_cudaExtent(kWidth, kHeight, 1)), plane);

    const cudaTextureObject_t texture =
        textures::OfArray(array, textures::Describe(cudaAddressModeClamp, cudaFilterModePoint,
                                                    false, cudaReadModeElementType));
    ReadTexture<<<kHeight, kWidth>>>(texture, zero);
    CHECK(cudaGetLastError());
    check::Compare("as a texture", check::Download(zero, plane.size()), plane);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(zero));
    CHECK(cudaFree(clamped));
  }
  {
    const cudaExtent extent = make_cudaExtent(9, 7, 5);
    const cudaArray_t array = Make<uint4>(extent, 0);
    const cudaSurfaceObject_t surface = textures::SurfaceOf(array);
    WriteVolume<<<5, dim3(9, 7)>>>(surface);
    Double<<<5, dim3(9, 7)>>>(surface);
    CHECK(cudaGetLastError());
    std::vector<uint4> want;
    for (unsigned z = 0; z < 5; ++z)
      for (unsigned y = 0; y < 7; ++y)
        for (unsigned x = 0; x < 9; ++x)
          want.push_back(make_uint4(2 * x, 2 * y, 2 * z, 2 * x * y * z));
    check::Compare("volume", ReadBack<uint4>(array, extent), want);
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(array));
  }
  {
    const cudaExtent extent = make_cudaExtent(8, 8, 4);
    const cudaArray_t array = Make<unsigned char>(extent, cudaArrayLayered);
    const cudaSurfaceObject_t surface = textures::SurfaceOf(array);
    WriteLayers<<<4, dim3(8, 8)>>>(surface);
    CHECK(cudaGetLastError());
    std::vector<unsigned char> want;
    for (int i = 0; i < 256; ++i) want.push_back(static_cast<unsigned char>(i));
    check::Compare("layers", ReadBack<unsigned char>(array, extent), want);
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(array));
  }
  return check::Ok();
}
