// Texture and surface objects. Their handles are the device's own, because kernels get them. The
// shim remembers what the objects were made of.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "client_shim/memory/arrays.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/copy.h"
#include "proto/driver_api/shim_api.h"
#include "proto/wire/array.h"

namespace detshare::shim::api {
namespace {

struct ImageObject {
  Context* context = nullptr;
  ContextId context_id = 0;
  uint16_t device = 0;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC sampling{};                 // of textures
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;  // of textures of arrays

  bool live() const { return context->id.load(std::memory_order_acquire) == context_id; }
};

ImageObject ObjectOf(Context& context, const CUDA_RESOURCE_DESC& resource) {
  ImageObject object;
  object.context = &context;
  object.context_id = context.id.load(std::memory_order_acquire);
  object.device = context.device;
  object.resource = resource;
  return object;
}

// Objects by handle. Two devices may give the same handle. Then the current context's device
// decides.
class ImageObjects {
 public:
  void Add(uint64_t handle, ImageObject object) {
    const std::lock_guard lock(mutex_);
    objects_.insert_or_assign({object.device, handle}, std::move(object));
  }
  std::optional<ImageObject> Find(uint16_t device, uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find({device, handle});
    if (found == objects_.end() || !found->second.live()) return std::nullopt;
    return found->second;
  }
  std::optional<ImageObject> Take(uint16_t device, uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find({device, handle});
    if (found == objects_.end()) return std::nullopt;
    std::optional<ImageObject> object;
    if (found->second.live()) object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<uint16_t, uint64_t>, ImageObject> objects_;
};

ImageObjects& textures() {
  static ImageObjects* const objects = new ImageObjects;
  return *objects;
}
ImageObjects& surfaces() {
  static ImageObjects* const objects = new ImageObjects;
  return *objects;
}

// Finds the object of the current context's device.
CUresult Find(ImageObjects& objects, uint64_t handle, std::optional<ImageObject>* object) {
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  *object = objects.Find(context->device, handle);
  return object->has_value() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <typename Args>
CUresult Destroy(ImageObjects& objects, Op op, uint64_t handle) {
  Context* context;
  CUresult result = ContextForWork(&context);
  if (result != CUDA_SUCCESS) return result;
  const std::optional<ImageObject> object = objects.Take(context->device, handle);
  if (!object) return CUDA_ERROR_INVALID_VALUE;
  return session().Submit(op, object->device, object->context_id, Args{handle});
}

// Describes memory that a texture reads, as the device knows it. The texture may be larger than the
// memory in which it begins.
CUresult DescribeMemory(CUdeviceptr pointer, CUarray_format format, unsigned int channels,
                        uint16_t device, wire::cuTexObjectCreate* args) {
  Place place;
  const CUresult result = FindPlace(pointer, 1, Side::kDevice, device, &place);
  if (result != CUDA_SUCCESS) return result;
  args->address = place.gpu;
  args->format = format;
  args->channels = channels;
  return CUDA_SUCCESS;
}

// The resource as the driver reads it, and as it gives it back. Rows of memory are a line of texels
// where their number is 0. The pitch of a single row does not count.
CUDA_RESOURCE_DESC AsGivenBack(const CUDA_RESOURCE_DESC& asked) {
  if (asked.resType != CU_RESOURCE_TYPE_PITCH2D || asked.res.pitch2D.height > 1) return asked;
  CUDA_RESOURCE_DESC resource = asked;
  if (asked.res.pitch2D.height == 1) {
    resource.res.pitch2D.pitchInBytes = 0;
    return resource;
  }
  const auto pitched = asked.res.pitch2D;
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  memset(&resource.res, 0, sizeof(resource.res));
  resource.res.linear = {pitched.devPtr, pitched.format, pitched.numChannels, pitched.pitchInBytes};
  return resource;
}

// Replaces address modes that the driver does not know by CLAMP, as it does, for the dimensions that
// the resource lacks. It refuses the others.
void SkipUnusedModes(const CUDA_RESOURCE_DESC& resource, CUDA_TEXTURE_DESC* sampling) {
  int dimensions = resource.resType == CU_RESOURCE_TYPE_PITCH2D ? 2 : 1;
  const ArrayObject* array = nullptr;
  if (resource.resType == CU_RESOURCE_TYPE_ARRAY) array = FindArray(resource.res.array.hArray);
  if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
    array = FindMipmappedArray(resource.res.mipmap.hMipmappedArray);
  if (array != nullptr && array->description.Height != 0)
    dimensions = array->description.Depth != 0 && !array->layered() ? 3 : 2;
  for (int i = dimensions; i < 3; ++i) {
    if (static_cast<unsigned int>(sampling->addressMode[i]) > CU_TR_ADDRESS_MODE_BORDER)
      sampling->addressMode[i] = CU_TR_ADDRESS_MODE_CLAMP;
  }
}

// The driver ignores a view of memory. One that says nothing means no view.
bool HasView(const CUDA_RESOURCE_DESC& resource, const CUDA_RESOURCE_VIEW_DESC* view) {
  if (view == nullptr || resource.resType == CU_RESOURCE_TYPE_LINEAR ||
      resource.resType == CU_RESOURCE_TYPE_PITCH2D) {
    return false;
  }
  return view->format != CU_RES_VIEW_FORMAT_NONE || view->width != 0 || view->height != 0 ||
         view->depth != 0 || view->firstMipmapLevel != 0 || view->lastMipmapLevel != 0 ||
         view->firstLayer != 0 || view->lastLayer != 0;
}

CUresult DescribeResource(const CUDA_RESOURCE_DESC& resource, uint16_t device,
                          wire::cuTexObjectCreate* args) {
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  args->type = resource.resType;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      const ArrayObject* const array = FindArray(resource.res.array.hArray);
      if (array == nullptr || array->device != device) return CUDA_ERROR_INVALID_HANDLE;
      args->array = array->id;
      args->level = array->level;
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      const ArrayObject* const array = FindMipmappedArray(resource.res.mipmap.hMipmappedArray);
      if (array == nullptr || array->device != device) return CUDA_ERROR_INVALID_HANDLE;
      args->array = array->id;
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& linear = resource.res.linear;
      args->bytes = linear.sizeInBytes;
      return DescribeMemory(linear.devPtr, linear.format, linear.numChannels, device, args);
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& pitched = resource.res.pitch2D;
      args->width = pitched.width;
      args->height = pitched.height;
      args->pitch = pitched.pitchInBytes;
      return DescribeMemory(pitched.devPtr, pitched.format, pitched.numChannels, device, args);
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

void DescribeSampling(const CUDA_TEXTURE_DESC& sampling, wire::cuTexObjectCreate* args) {
  std::copy(std::begin(sampling.addressMode), std::end(sampling.addressMode), args->address_modes);
  args->filter_mode = sampling.filterMode;
  args->flags = sampling.flags;
  args->max_anisotropy = sampling.maxAnisotropy;
  args->mipmap_filter_mode = sampling.mipmapFilterMode;
  args->mipmap_level_bias = std::bit_cast<uint32_t>(sampling.mipmapLevelBias);
  args->min_mipmap_level_clamp = std::bit_cast<uint32_t>(sampling.minMipmapLevelClamp);
  args->max_mipmap_level_clamp = std::bit_cast<uint32_t>(sampling.maxMipmapLevelClamp);
  std::transform(std::begin(sampling.borderColor), std::end(sampling.borderColor),
                 args->border_color, [](float value) { return std::bit_cast<uint32_t>(value); });
}

wire::ResourceView Describe(const CUDA_RESOURCE_VIEW_DESC& view) {
  return {view.width,
          view.height,
          view.depth,
          static_cast<uint32_t>(view.format),
          view.firstMipmapLevel,
          view.lastMipmapLevel,
          view.firstLayer,
          view.lastLayer,
          0};
}

}  // namespace

CUresult cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                           const CUDA_TEXTURE_DESC* pTexDesc,
                           const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  Context* context;
  CUresult result = ContextForWork(&context);
  if (result != CUDA_SUCCESS) return result;
  wire::cuTexObjectCreate args{};
  ImageObject object = ObjectOf(*context, AsGivenBack(*pResDesc));
  object.sampling = *pTexDesc;
  SkipUnusedModes(object.resource, &object.sampling);
  // The device gets the pitch of a single row.
  const bool rows = object.resource.resType == CU_RESOURCE_TYPE_PITCH2D;
  result = DescribeResource(rows ? *pResDesc : object.resource, context->device, &args);
  if (result != CUDA_SUCCESS) return result;
  DescribeSampling(object.sampling, &args);
  if (HasView(*pResDesc, pResViewDesc)) {
    args.has_view = 1;
    args.view = Describe(*pResViewDesc);
    object.view = *pResViewDesc;
  }
  wire::cuTexObjectCreate_Reply reply{};
  result = session().Call(Op::cuTexObjectCreate, object.device, object.context_id, args, &reply);
  if (result != CUDA_SUCCESS) return result;
  textures().Add(reply.handle, std::move(object));
  *pTexObject = reply.handle;
  return CUDA_SUCCESS;
}

CUresult cuTexObjectDestroy(CUtexObject texObject) {
  return Destroy<wire::cuTexObjectDestroy>(textures(), Op::cuTexObjectDestroy, texObject);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  std::optional<ImageObject> object;
  const CUresult result = Find(textures(), texObject, &object);
  if (result == CUDA_SUCCESS) *pResDesc = object->resource;
  return result;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  std::optional<ImageObject> object;
  const CUresult result = Find(textures(), texObject, &object);
  // The driver leaves the border colour and the reserved fields as they were.
  if (result == CUDA_SUCCESS)
    memcpy(pTexDesc, &object->sampling, offsetof(CUDA_TEXTURE_DESC, borderColor));
  return result;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* pResViewDesc,
                                        CUtexObject texObject) {
  std::optional<ImageObject> object;
  const CUresult result = Find(textures(), texObject, &object);
  if (result != CUDA_SUCCESS) return result;
  // The driver leaves the output as it was where there is no view.
  if (object->view) *pResViewDesc = *object->view;
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  Context* context;
  CUresult result = ContextForWork(&context);
  if (result != CUDA_SUCCESS) return result;
  if (pResDesc->resType != CU_RESOURCE_TYPE_ARRAY || pResDesc->flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const ArrayObject* const array = FindArray(pResDesc->res.array.hArray);
  if (array == nullptr || array->device != context->device) return CUDA_ERROR_INVALID_HANDLE;
  ImageObject object = ObjectOf(*context, *pResDesc);
  wire::cuSurfObjectCreate_Reply reply{};
  result = session().Call(Op::cuSurfObjectCreate, object.device, object.context_id,
                          wire::cuSurfObjectCreate{array->id, array->level}, &reply);
  if (result != CUDA_SUCCESS) return result;
  surfaces().Add(reply.handle, std::move(object));
  *pSurfObject = reply.handle;
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject) {
  return Destroy<wire::cuSurfObjectDestroy>(surfaces(), Op::cuSurfObjectDestroy, surfObject);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) {
  std::optional<ImageObject> object;
  const CUresult result = Find(surfaces(), surfObject, &object);
  if (result == CUDA_SUCCESS) *pResDesc = object->resource;
  return result;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements, CUarray_format format,
                                            unsigned numChannels, CUdevice dev) {
  // The driver looks at the device last.
  if (ChannelBytes(format) == 0 || IsNormalized(format) ||
      (numChannels != 1 && numChannels != 2 && numChannels != 4))
    return CUDA_ERROR_INVALID_VALUE;
  if (!session().HasDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  wire::cuDeviceGetTexture1DLinearMaxWidth_Reply reply{};
  const CUresult result = session().Call(
      Op::cuDeviceGetTexture1DLinearMaxWidth, static_cast<uint16_t>(dev), 0,
      wire::cuDeviceGetTexture1DLinearMaxWidth{static_cast<uint32_t>(format), numChannels}, &reply);
  if (result == CUDA_SUCCESS) *maxWidthInElements = reply.width;
  return result;
}

}  // namespace detshare::shim::api
