// Tensor maps. The daemon encodes them, once for the same arguments.
//
// cuda.h documents an alignment of 64 bytes, but the driver has none: it accepts multiples of 8
// (seen with driver 580; smaller ones were not tried).
#include "proto/wire/tensor_map.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "client_shim/memory/tensor_map_cache.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/transport/session.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

TensorMapCache& cache() {
  static TensorMapCache* const maps = new TensorMapCache;
  return *maps;
}

// Whether arguments that must not be 0 are not. The driver writes nothing where they are.
bool AllSet(const cuuint64_t* values, cuuint32_t rank) {
  return std::find(values, values + rank, 0) == values + rank;
}
bool AllSet(const cuuint32_t* values, cuuint32_t rank) {
  return std::find(values, values + rank, 0) == values + rank;
}

// The driver clears the map before it refuses a rank.
CUresult RefuseRank(CUtensorMap* map) {
  memset(reinterpret_cast<void*>(map), 0, sizeof(*map));
  return CUDA_ERROR_INVALID_VALUE;
}

// Encoding needs no current context, as natively. If there is one, its device encodes.
uint16_t EncodingDevice() {
  Context* context;
  return CurrentContext(&context) == CUDA_SUCCESS ? context->device : 0;
}

template <typename Reply, typename Args>
CUresult Encode(Op op, const Args& args, CUtensorMap* map) {
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) return error;
  static_assert(sizeof(CUtensorMap) == sizeof(TensorMapWords));
  const uint16_t device = EncodingDevice();
  const TensorMapKey key(device, static_cast<uint16_t>(op), args);
  TensorMapWords words;
  if (!cache().Find(key, &words)) {
    static_assert(sizeof(Reply) == sizeof(words));
    std::string reply;
    const CUresult result = session().CallControl(op, device, 0, &args, sizeof(args), {}, &reply);
    // The driver writes a part of the map before some errors.
    if (reply.size() == sizeof(*map) && result != CUDA_SUCCESS)
      memcpy(reinterpret_cast<void*>(map), reply.data(), sizeof(*map));
    if (result != CUDA_SUCCESS) return result;
    if (reply.size() != sizeof(words)) return CUDA_ERROR_UNKNOWN;
    memcpy(words.data(), reply.data(), sizeof(words));
    cache().Store(key, words);
  }
  memcpy(reinterpret_cast<void*>(map), words.data(), sizeof(*map));
  return CUDA_SUCCESS;
}

// The part that all kinds share. The caller has checked `rank`.
template <typename Args>
void Describe(CUtensorMapDataType type, cuuint32_t rank, void* address,
              const cuuint64_t* dimensions, const cuuint64_t* strides,
              const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
              CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
              CUtensorMapFloatOOBfill fill, Args* args) {
  args->address = reinterpret_cast<uint64_t>(address);
  std::copy_n(dimensions, rank, args->dimensions);
  std::copy_n(strides, rank - 1, args->strides);
  std::copy_n(element_strides, rank, args->element_strides);
  args->data_type = type;
  args->rank = rank;
  args->interleave = interleave;
  args->swizzle = swizzle;
  args->l2_promotion = promotion;
  args->out_of_bounds_fill = fill;
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                cuuint32_t tensorRank, void* globalAddress,
                                const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                const cuuint32_t* boxDim, const cuuint32_t* elementStrides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2Promotion,
                                CUtensorMapFloatOOBfill oobFill) {
  const cuuint32_t known = std::min<cuuint32_t>(tensorRank, wire::kTensorRank);
  if (tensorMap == nullptr || tensorRank == 0 || globalDim == nullptr || globalStrides == nullptr ||
      boxDim == nullptr || elementStrides == nullptr || !AllSet(globalDim, known) ||
      !AllSet(boxDim, known) || !AllSet(elementStrides, known)) {
    // As natively, also without strides where one dimension has none (seen with driver 580).
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (tensorRank > wire::kTensorRank) return RefuseRank(tensorMap);
  wire::cuTensorMapEncodeTiled args{};
  Describe(tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, elementStrides,
           interleave, swizzle, l2Promotion, oobFill, &args);
  std::copy_n(boxDim, tensorRank, args.box);
  return Encode<wire::cuTensorMapEncodeTiled_Reply>(Op::cuTensorMapEncodeTiled, args, tensorMap);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                 cuuint32_t tensorRank, void* globalAddress,
                                 const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                 const int* pixelBoxLowerCorner, const int* pixelBoxUpperCorner,
                                 cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
                                 const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                 CUtensorMapFloatOOBfill oobFill) {
  const cuuint32_t known = std::min<cuuint32_t>(tensorRank, wire::kTensorRank);
  if (tensorMap == nullptr || tensorRank == 0 || globalDim == nullptr || globalStrides == nullptr ||
      pixelBoxLowerCorner == nullptr || pixelBoxUpperCorner == nullptr ||
      elementStrides == nullptr || channelsPerPixel == 0 || pixelsPerColumn == 0 ||
      !AllSet(globalDim, known) || !AllSet(elementStrides, known)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (tensorRank < 3 || tensorRank > wire::kTensorRank) return RefuseRank(tensorMap);
  wire::cuTensorMapEncodeIm2col args{};
  Describe(tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, elementStrides,
           interleave, swizzle, l2Promotion, oobFill, &args);
  std::copy_n(pixelBoxLowerCorner, tensorRank - 2, args.lower_corner);
  std::copy_n(pixelBoxUpperCorner, tensorRank - 2, args.upper_corner);
  args.channels_per_pixel = channelsPerPixel;
  args.pixels_per_column = pixelsPerColumn;
  return Encode<wire::cuTensorMapEncodeIm2col_Reply>(Op::cuTensorMapEncodeIm2col, args, tensorMap);
}

CUresult cuTensorMapEncodeIm2colWide(
    CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void* globalAddress, const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
    int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill) {
  const cuuint32_t known = std::min<cuuint32_t>(tensorRank, wire::kTensorRank);
  if (tensorMap == nullptr || tensorRank == 0 || globalDim == nullptr || globalStrides == nullptr ||
      elementStrides == nullptr || channelsPerPixel == 0 || pixelsPerColumn == 0 ||
      !AllSet(globalDim, known) || !AllSet(elementStrides, known)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (tensorRank < 3 || tensorRank > wire::kTensorRank) return RefuseRank(tensorMap);
  wire::cuTensorMapEncodeIm2colWide args{};
  Describe(tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, elementStrides,
           interleave, swizzle, l2Promotion, oobFill, &args);
  args.lower_corner_width = pixelBoxLowerCornerWidth;
  args.upper_corner_width = pixelBoxUpperCornerWidth;
  args.channels_per_pixel = channelsPerPixel;
  args.pixels_per_column = pixelsPerColumn;
  args.mode = mode;
  return Encode<wire::cuTensorMapEncodeIm2colWide_Reply>(Op::cuTensorMapEncodeIm2colWide, args,
                                                         tensorMap);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* tensorMap, void* globalAddress) {
  if (tensorMap == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::cuTensorMapReplaceAddress args{};
  memcpy(args.map, reinterpret_cast<const void*>(tensorMap), sizeof(args.map));
  args.address = reinterpret_cast<uint64_t>(globalAddress);
  return Encode<wire::cuTensorMapReplaceAddress_Reply>(Op::cuTensorMapReplaceAddress, args,
                                                       tensorMap);
}

}  // namespace detshare::shim::api
