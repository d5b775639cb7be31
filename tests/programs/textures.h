// Helpers of the texture programs: makes textures, and computes what a two-dimensional texture must
// return.
#pragma once

#include <cmath>

#include "check.h"

namespace textures {

inline cudaTextureDesc Describe(cudaTextureAddressMode mode, cudaTextureFilterMode filter,
                                bool normalized, cudaTextureReadMode read) {
  cudaTextureDesc description = {};
  for (cudaTextureAddressMode& m : description.addressMode) m = mode;
  description.filterMode = filter;
  description.readMode = read;
  description.normalizedCoords = normalized;
  return description;
}

inline cudaTextureObject_t OfArray(cudaArray_t array, const cudaTextureDesc& description) {
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureObject_t texture = 0;
  CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  REQUIRE(texture != 0);
  return texture;
}

inline cudaSurfaceObject_t SurfaceOf(cudaArray_t array) {
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaSurfaceObject_t surface = 0;
  CHECK(cudaCreateSurfaceObject(&surface, &resource));
  REQUIRE(surface != 0);
  return surface;
}

// A one-channel image of floats, and its texels as the programming guide defines them.
struct Image {
  int width, height;
  std::vector<float> texels;

  static int Index(int i, int size, cudaTextureAddressMode mode) {
    if (i >= 0 && i < size) return i;
    switch (mode) {
      case cudaAddressModeWrap:
        return ((i % size) + size) % size;
      case cudaAddressModeMirror: {
        const int at = ((i % (2 * size)) + 2 * size) % (2 * size);
        return at < size ? at : 2 * size - 1 - at;
      }
      case cudaAddressModeClamp:
        return i < 0 ? 0 : size - 1;
      default:
        return -1;
    }
  }
  float Texel(int x, int y, const cudaTextureDesc& t) const {
    x = Index(x, width, t.addressMode[0]);
    y = Index(y, height, t.addressMode[1]);
    return x < 0 || y < 0 ? t.borderColor[0] : texels[y * width + x];
  }
  // Exact for coordinates that are multiples of 1/256 of a texel, and for small texel values.
  float Read(float x, float y, const cudaTextureDesc& t) const {
    if (t.normalizedCoords) {
      x *= static_cast<float>(width);
      y *= static_cast<float>(height);
    }
    if (t.filterMode == cudaFilterModePoint) {
      return Texel(static_cast<int>(std::floor(x)), static_cast<int>(std::floor(y)), t);
    }
    const float xb = x - 0.5f, yb = y - 0.5f;
    const int i = static_cast<int>(std::floor(xb)), j = static_cast<int>(std::floor(yb));
    const float a = xb - std::floor(xb), b = yb - std::floor(yb);
    return (1 - a) * (1 - b) * Texel(i, j, t) + a * (1 - b) * Texel(i + 1, j, t) +
           (1 - a) * b * Texel(i, j + 1, t) + a * b * Texel(i + 1, j + 1, t);
  }
};

}  // namespace textures
