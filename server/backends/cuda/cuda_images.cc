#include "server/backends/cuda/cuda_images.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/cuda_address_space.h"

namespace detshare::cuda {
namespace {

constexpr uint64_t kZeroBytes = 8 << 20;  // at least one row of any array
// How long a full card waits for a moment at which arrays that were given up can be freed.
constexpr std::chrono::milliseconds kReclaimLimit(500);

// A handle of the driver that the deferred reclaimer destroys.
class CudaImage final : public ImageObject {
 public:
  using Destroy = CUresult (*)(unsigned long long);
  CudaImage(CudaGroup& group, DeferredReclaimer& reclaimer, uint64_t handle, Destroy destroy)
      : group_(group), reclaimer_(reclaimer), handle_(handle), destroy_(destroy) {}
  ~CudaImage() override {
    reclaimer_.Later(DeferredReclaimer::Of(group_),
                     [&group = group_, destroy = destroy_, handle = handle_] {
                       group.Enter();
                       destroy(handle);
                     });
  }
  uint64_t handle() const override { return handle_; }

 private:
  CudaGroup& group_;
  DeferredReclaimer& reclaimer_;
  const uint64_t handle_;
  const Destroy destroy_;
};

CUDA_RESOURCE_DESC ResourceOf(const TextureResource& from) {
  CUDA_RESOURCE_DESC resource{};
  const auto* const array = static_cast<const CudaArray*>(from.array.get());
  switch (from.kind) {
    case TextureResource::Kind::kArray:
      resource.resType = CU_RESOURCE_TYPE_ARRAY;
      resource.res.array.hArray = array->level(from.level);
      break;
    case TextureResource::Kind::kMipmappedArray:
      resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
      resource.res.mipmap.hMipmappedArray = array->mipmap();
      break;
    case TextureResource::Kind::kLinear:
      resource.resType = CU_RESOURCE_TYPE_LINEAR;
      resource.res.linear.devPtr = from.address;
      resource.res.linear.format = static_cast<CUarray_format>(from.format);
      resource.res.linear.numChannels = from.channels;
      resource.res.linear.sizeInBytes = from.bytes;
      break;
    case TextureResource::Kind::kPitched:
      resource.resType = CU_RESOURCE_TYPE_PITCH2D;
      resource.res.pitch2D.devPtr = from.address;
      resource.res.pitch2D.format = static_cast<CUarray_format>(from.format);
      resource.res.pitch2D.numChannels = from.channels;
      resource.res.pitch2D.width = from.width;
      resource.res.pitch2D.height = from.height;
      resource.res.pitch2D.pitchInBytes = from.pitch;
      break;
  }
  return resource;
}

CUDA_TEXTURE_DESC SamplingOf(const TextureSampling& from) {
  CUDA_TEXTURE_DESC sampling{};
  for (int i = 0; i < 3; ++i)
    sampling.addressMode[i] = static_cast<CUaddress_mode>(from.address_modes[i]);
  sampling.filterMode = static_cast<CUfilter_mode>(from.filter_mode);
  sampling.flags = from.flags;
  sampling.maxAnisotropy = from.max_anisotropy;
  sampling.mipmapFilterMode = static_cast<CUfilter_mode>(from.mipmap_filter_mode);
  sampling.mipmapLevelBias = from.mipmap_level_bias;
  sampling.minMipmapLevelClamp = from.min_mipmap_level_clamp;
  sampling.maxMipmapLevelClamp = from.max_mipmap_level_clamp;
  std::copy(from.border_color.begin(), from.border_color.end(), sampling.borderColor);
  return sampling;
}

CUDA_RESOURCE_VIEW_DESC ViewOf(const TextureView& from) {
  CUDA_RESOURCE_VIEW_DESC view{};
  view.format = static_cast<CUresourceViewFormat>(from.format);
  view.width = from.width;
  view.height = from.height;
  view.depth = from.depth;
  view.firstMipmapLevel = from.first_level;
  view.lastMipmapLevel = from.last_level;
  view.firstLayer = from.first_layer;
  view.lastLayer = from.last_layer;
  return view;
}

}  // namespace

// ---- arrays

CudaArray::~CudaArray() {
  reclaimer_.Later(DeferredReclaimer::Of(group_),
                   [&group = group_, mipmap = mipmap_,
                    array = levels_.empty() ? nullptr : levels_[0], kept = TakeKept()] {
                     group.Enter();
                     if (mipmap != nullptr) {
                       group.gpu.api.cuMipmappedArrayDestroy(mipmap);
                     } else {
                       group.gpu.api.cuArrayDestroy(array);
                     }
                   });
}

absl::Status CudaArray::FindLevels() {
  if (mipmap_ == nullptr) return absl::OkStatus();
  for (uint32_t level = 0; level < description().levels; ++level) {
    CUarray array = nullptr;
    DETSHARE_RETURN_IF_ERROR(
        group_.gpu.Check(group_.gpu.api.cuMipmappedArrayGetLevel(&array, mipmap_, level),
                         "cuMipmappedArrayGetLevel"));
    levels_.push_back(array);
  }
  return absl::OkStatus();
}

CudaImages::~CudaImages() {
  const MutexLock lock(&clearing_);
  for (CudaGroup* const group : {&context_.ordinary, context_.urgent()}) {
    if (group == nullptr) continue;
    const Zeros& zeros = zeros_[group->urgent];
    group->Enter();
    if (zeros.stream != nullptr) context_.api.cuStreamDestroy(zeros.stream);
    if (zeros.memory != 0) context_.api.cuMemFree(zeros.memory);
  }
}

absl::StatusOr<std::unique_ptr<Array>> CudaImages::CreateArray(
    AddressSpace& space, const ArrayDescription& description) {
  CudaGroup& group = EnterAndBind(space);
  CUDA_ARRAY3D_DESCRIPTOR asked{};
  asked.Width = description.width;
  asked.Height = description.height;
  asked.Depth = description.depth;
  asked.Format = static_cast<CUarray_format>(description.format);
  asked.NumChannels = description.channels;
  asked.Flags = description.flags;
  CUarray array = nullptr;
  CUmipmappedArray mipmap = nullptr;
  const auto create = [&] {
    group.Enter();
    return description.levels == 0
               ? context_.Check(context_.api.cuArray3DCreate(&array, &asked), "cuArray3DCreate")
               : context_.Check(
                     context_.api.cuMipmappedArrayCreate(&mipmap, &asked, description.levels),
                     "cuMipmappedArrayCreate");
  };
  absl::Status status = create();
  if (CudaResultOf(status) == kCudaErrorOutOfMemory &&
      reclaimer_.MakeNow(static_cast<CudaAddressSpace&>(space), kReclaimLimit)) {
    status = create();
  }
  if (!status.ok()) return status;
  auto made = std::make_unique<CudaArray>(group, reclaimer_, description, array, mipmap);
  status = made->FindLevels();
  if (status.ok()) status = Clear(*made);
  if (!status.ok()) return status;
  return made;
}

absl::Status CudaImages::Prepare(Zeros& zeros) {
  if (zeros.stream == nullptr) {
    DETSHARE_RETURN_IF_ERROR(context_.Check(
        context_.api.cuStreamCreateWithPriority(&zeros.stream, CU_STREAM_NON_BLOCKING, 0),
        "cuStreamCreateWithPriority"));
  }
  if (zeros.memory != 0) return absl::OkStatus();
  DETSHARE_RETURN_IF_ERROR(
      context_.Check(context_.api.cuMemAlloc(&zeros.memory, kZeroBytes), "cuMemAlloc"));
  // The copies that follow are on the same stream.
  return context_.Check(context_.api.cuMemsetD8Async(zeros.memory, 0, kZeroBytes, zeros.stream),
                        "cuMemsetD8Async");
}

absl::Status CudaImages::ClearLevel(const Zeros& zeros, const CudaArray& array, uint32_t level) {
  const ArrayExtent extent = LevelExtent(array.description(), level);
  const uint64_t rows_at_once = std::min(extent.rows, kZeroBytes / extent.row_bytes);
  if (rows_at_once == 0)
    return CudaError(kCudaErrorInvalidValue, "the rows of the array are too long");
  // Clears whole slices if several fit.
  const uint64_t slices_at_once =
      rows_at_once < extent.rows
          ? 1
          : std::min(extent.slices, kZeroBytes / (extent.row_bytes * extent.rows));
  for (uint64_t slice = 0; slice < extent.slices; slice += slices_at_once) {
    for (uint64_t row = 0; row < extent.rows; row += rows_at_once) {
      CUDA_MEMCPY3D copy{};
      copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
      copy.srcDevice = zeros.memory;
      copy.srcPitch = extent.row_bytes;
      copy.srcHeight = rows_at_once;
      copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
      copy.dstArray = array.level(level);
      copy.dstY = row;
      copy.dstZ = slice;
      copy.WidthInBytes = extent.row_bytes;
      copy.Height = std::min(rows_at_once, extent.rows - row);
      copy.Depth = std::min(slices_at_once, extent.slices - slice);
      DETSHARE_RETURN_IF_ERROR(
          context_.Check(context_.api.cuMemcpy3DAsync(&copy, zeros.stream), "cuMemcpy3DAsync"));
    }
  }
  return absl::OkStatus();
}

absl::Status CudaImages::Clear(const CudaArray& array) {
  const MutexLock lock(&clearing_);
  Zeros& zeros = zeros_[array.group().urgent];
  const OrdinarySlice::Call own(array.group().slice.get());
  absl::Status status = Prepare(zeros);
  for (uint32_t level = 0; status.ok() && level < array.description().level_count(); ++level)
    status = ClearLevel(zeros, array, level);
  if (zeros.stream == nullptr) return status;
  // Waits in any case, because queued work must not outlive the array.
  absl::Status done =
      context_.Check(context_.api.cuStreamSynchronize(zeros.stream), "cuStreamSynchronize");
  return status.ok() ? done : status;
}

// ---- textures and surfaces

CudaGroup& CudaImages::EnterAndBind(AddressSpace& space) {
  CudaGroup& group = context_.GroupOf(space);
  group.Enter();
  space.BindToGroup();
  return group;
}

absl::StatusOr<std::unique_ptr<ImageObject>> CudaImages::CreateTexture(
    AddressSpace& space, const TextureRequest& request) {
  CudaGroup& group = EnterAndBind(space);
  const CUDA_RESOURCE_DESC resource = ResourceOf(request.resource);
  const CUDA_TEXTURE_DESC sampling = SamplingOf(request.sampling);
  const CUDA_RESOURCE_VIEW_DESC view = ViewOf(request.view);
  CUtexObject handle = 0;
  DETSHARE_RETURN_IF_ERROR(
      context_.Check(context_.api.cuTexObjectCreate(&handle, &resource, &sampling,
                                                    request.has_view ? &view : nullptr),
                     "cuTexObjectCreate"));
  return std::make_unique<CudaImage>(group, reclaimer_, handle, context_.api.cuTexObjectDestroy);
}

absl::StatusOr<std::unique_ptr<ImageObject>> CudaImages::CreateSurface(AddressSpace& space,
                                                                       std::shared_ptr<Array> array,
                                                                       uint32_t level) {
  CudaGroup& group = EnterAndBind(space);
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = static_cast<const CudaArray&>(*array).level(level);
  CUsurfObject handle = 0;
  DETSHARE_RETURN_IF_ERROR(
      context_.Check(context_.api.cuSurfObjectCreate(&handle, &resource), "cuSurfObjectCreate"));
  return std::make_unique<CudaImage>(group, reclaimer_, handle, context_.api.cuSurfObjectDestroy);
}

absl::StatusOr<uint64_t> CudaImages::LinearTextureWidth(uint32_t format, uint32_t channels) {
  context_.Enter();
  size_t width = 0;
  DETSHARE_RETURN_IF_ERROR(
      context_.Check(context_.api.cuDeviceGetTexture1DLinearMaxWidth(
                         &width, static_cast<CUarray_format>(format), channels, context_.device),
                     "cuDeviceGetTexture1DLinearMaxWidth"));
  return width;
}

}  // namespace detshare::cuda
