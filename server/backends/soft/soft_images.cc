#include "server/backends/soft/soft_images.h"

#include <cuda.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "coroutine_runtime/status_cuda.h"
#include "server/backends/soft/soft_properties.h"

namespace detshare::soft {
namespace {

// The largest sides of a kind of array on the device. 0: the kind does not limit that side.
struct Sides {
  int width, height, depth;
};

Sides LargestSides(const ArrayDescription& array) {
  const bool layered = (array.flags & kArrayLayered) != 0;
  const bool cube = (array.flags & kArrayCubemap) != 0;
  const bool surface = (array.flags & kArraySurface) != 0;
  if (cube && layered) {
    return surface ? Sides{CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, 0,
                           CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS}
                   : Sides{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, 0,
                           CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS};
  }
  if (cube) {
    return {surface ? CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH
                    : CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH,
            0, 0};
  }
  if (layered && array.height == 0) {
    return surface ? Sides{CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH, 0,
                           CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS}
                   : Sides{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 0,
                           CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS};
  }
  if (layered) {
    return surface ? Sides{CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH,
                           CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT,
                           CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS}
                   : Sides{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
                           CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
                           CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS};
  }
  if (array.depth != 0) {
    return surface ? Sides{CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH,
                           CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT,
                           CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH}
                   : Sides{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH,
                           CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT,
                           CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH};
  }
  if (array.height == 0) {
    return {surface             ? CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH
            : array.levels != 0 ? CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH
                                : CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH,
            0, 0};
  }
  if ((array.flags & kArrayGather) != 0) {
    return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 0};
  }
  if (surface) {
    return {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT, 0};
  }
  if (array.levels != 0) {
    return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 0};
  }
  return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT,
          0};
}

bool FitsDevice(const DeviceProperties& properties, const ArrayDescription& array) {
  const auto within = [&](uint64_t side, int attribute) {
    return attribute == 0 || side <= static_cast<uint64_t>(AttributeOf(properties, attribute));
  };
  const Sides largest = LargestSides(array);
  return within(array.width, largest.width) && within(array.height, largest.height) &&
         within(array.depth, largest.depth);
}

ptx::Image ImageOf(const SoftArray& array, uint32_t first_level, uint32_t levels) {
  const ArrayDescription& description = array.description();
  ptx::Image image;
  image.normalized = NormalizedChannels(description.format) != 0;
  if (image.normalized) {
    // In the order of TexelFormat, which has 1, 2 and 4 channels of each.
    constexpr ptx::TexelFormat kFormats[] = {ptx::TexelFormat::kU8, ptx::TexelFormat::kU16,
                                             ptx::TexelFormat::kS8, ptx::TexelFormat::kS16};
    const uint32_t first = static_cast<uint32_t>(TexelFormat::kUnorm8x1);
    image.format = kFormats[(description.format - first) / 3];
  } else {
    image.format = static_cast<ptx::TexelFormat>(description.format);
  }
  image.channels = description.channels;
  image.layered = description.layered();
  image.cubemap = (description.flags & kArrayCubemap) != 0;
  const auto begin = array.storage()->levels().begin() + first_level;
  image.levels.assign(begin, begin + levels);
  return image;
}

// Narrows an image to a view. The caller has checked that the view lies in the image.
absl::Status Narrow(const TextureView& view, ptx::Image* image) {
  constexpr uint32_t kFirstBlock = 0x19;
  if (view.format >= kFirstBlock)
    return CudaError(kCudaErrorNotSupported, "views of compressed blocks need a real GPU");
  // In the order of CUresourceViewFormat, which has 1, 2 and 4 channels of each.
  constexpr ptx::TexelFormat kFormats[] = {ptx::TexelFormat::kU8,  ptx::TexelFormat::kS8,
                                           ptx::TexelFormat::kU16, ptx::TexelFormat::kS16,
                                           ptx::TexelFormat::kU32, ptx::TexelFormat::kS32,
                                           ptx::TexelFormat::kF16, ptx::TexelFormat::kF32};
  if (view.format != CU_RES_VIEW_FORMAT_NONE) {
    image->format = kFormats[(view.format - 1) / 3];
    image->normalized = false;
    image->channels = 1u << (view.format - 1) % 3;
  }
  if (image->levels.size() > 1) {
    image->levels.erase(image->levels.begin() + view.last_level + 1, image->levels.end());
    image->levels.erase(image->levels.begin(), image->levels.begin() + view.first_level);
  }
  if (image->layered) {
    for (ptx::ImageLevel& level : image->levels) {
      level.address += view.first_layer * level.slice_pitch;
      level.slices = view.last_layer - view.first_layer + 1;
    }
  }
  return absl::OkStatus();
}

absl::Status FillSampler(const TextureRequest& request, ptx::Texture* texture) {
  const TextureSampling& from = request.sampling;
  ptx::Sampler* const sampler = &texture->sampler;
  for (int i = 0; i < 3; ++i)
    sampler->modes[i] = static_cast<ptx::AddressMode>(from.address_modes[i]);
  sampler->linear = from.filter_mode == CU_TR_FILTER_MODE_LINEAR;
  sampler->linear_between_levels = from.mipmap_filter_mode == CU_TR_FILTER_MODE_LINEAR;
  sampler->normalized_coordinates = (from.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  sampler->read_as_integer = (from.flags & CU_TRSF_READ_AS_INTEGER) != 0;
  sampler->srgb = (from.flags & CU_TRSF_SRGB) != 0;
  sampler->level_bias = from.mipmap_level_bias;
  sampler->min_level = from.min_mipmap_level_clamp;
  sampler->max_level = from.max_mipmap_level_clamp;
  sampler->border = from.border_color;
  sampler->zero_outside = request.resource.kind == TextureResource::Kind::kLinear;
  const bool mipmapped = request.resource.kind == TextureResource::Kind::kMipmappedArray;
  if (mipmapped && !sampler->normalized_coordinates)
    return InvalidValue("mipmap levels need normalised coordinates");
  if (ptx::ReadsIntegers(*texture) && sampler->linear)
    return InvalidValue("integer texels cannot be filtered");
  return absl::OkStatus();
}

template <typename Holder>
using Remover = Holder (ImageRegistry::*)(uint64_t);

// A texture or a surface in a session's registry.
template <typename Holder>
class RegisteredImage final : public ImageObject {
 public:
  RegisteredImage(std::shared_ptr<SpaceState> space, uint64_t handle, Remover<Holder> remove)
      : space_(std::move(space)), handle_(handle), remove_(remove) {}
  ~RegisteredImage() override {
    const Holder removed = (space_->images().*remove_)(handle_);
    // A kernel in flight may still use the object, although the program should have waited for it.
    space_->gate().Drain();
  }
  uint64_t handle() const override { return handle_; }

 private:
  const std::shared_ptr<SpaceState> space_;
  const uint64_t handle_;
  const Remover<Holder> remove_;
};

std::shared_ptr<SpaceState> StateOf(AddressSpace& space) {
  return static_cast<SoftAddressSpace&>(space).state();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ArrayStorage>> ArrayStorage::Create(
    const ArrayDescription& description, MemoryBudget& budget) {
  std::shared_ptr<ArrayStorage> storage(new ArrayStorage(budget));
  const uint64_t bytes = TexelBytes(description);
  if (!budget.Take(bytes))
    return CudaError(kCudaErrorOutOfMemory, "the software GPU's memory is used up");
  storage->bytes_ = bytes;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return CudaError(kCudaErrorOutOfMemory, "the process has no addresses left");
  storage->memory_ = memory;
  // A core dump of the daemon must not write a tenant's memory to disk.
  madvise(memory, bytes, MADV_DONTDUMP);
  uint64_t address = reinterpret_cast<uint64_t>(memory);
  for (uint32_t level = 0; level < description.level_count(); ++level) {
    const ArrayExtent extent = LevelExtent(description, level);
    ptx::ImageLevel image;
    image.address = address;
    image.width = static_cast<uint32_t>(extent.row_bytes / description.texel_bytes());
    image.height = static_cast<uint32_t>(extent.rows);
    image.slices = static_cast<uint32_t>(extent.slices);
    image.row_pitch = extent.row_bytes;
    image.slice_pitch = extent.row_bytes * extent.rows;
    storage->levels_.push_back(image);
    address += extent.bytes();
  }
  return std::shared_ptr<const ArrayStorage>(std::move(storage));
}

ArrayStorage::~ArrayStorage() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
  budget_.Give(bytes_);
}

absl::StatusOr<std::unique_ptr<Array>> SoftImages::CreateArray(
    AddressSpace&, const ArrayDescription& description) {
  if (!FitsDevice(properties_, description)) return InvalidValue("the array is too large");
  auto storage = ArrayStorage::Create(description, budget_);
  if (!storage.ok()) return storage.status();
  return std::make_unique<SoftArray>(description, *std::move(storage));
}

absl::StatusOr<std::unique_ptr<ImageObject>> SoftImages::CreateTexture(
    AddressSpace& space, const TextureRequest& request) {
  using Kind = TextureResource::Kind;
  const TextureResource& resource = request.resource;
  ptx::Texture texture;
  ptx::Image& image = texture.image;
  if (resource.kind == Kind::kArray) {
    image = ImageOf(static_cast<const SoftArray&>(*resource.array), resource.level, 1);
  } else if (resource.kind == Kind::kMipmappedArray) {
    image = ImageOf(static_cast<const SoftArray&>(*resource.array), 0,
                    resource.array->description().levels);
  } else {
    const bool pitched = resource.kind == Kind::kPitched;
    image.format = static_cast<ptx::TexelFormat>(resource.format);
    image.channels = resource.channels;
    image.in_tenant_memory = true;
    const auto attribute = [&](int name) {
      return static_cast<uint64_t>(AttributeOf(properties_, name));
    };
    if (resource.address % attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) != 0)
      return InvalidValue("the memory is not aligned for textures");
    const uint64_t width = pitched ? resource.width : resource.bytes / image.texel_bytes();
    if (width == 0) return InvalidValue("the memory is smaller than a texel");
    if (pitched ? resource.pitch % attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT) != 0 ||
                      width > attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH) ||
                      resource.height >
                          attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT) ||
                      resource.pitch > attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH)
                : width > attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH)) {
      return InvalidValue("the texture is too large, or its pitch is not aligned");
    }
    ptx::ImageLevel level;
    level.address = resource.address;
    level.width = static_cast<uint32_t>(width);
    level.height = pitched ? static_cast<uint32_t>(resource.height) : 1;
    level.row_pitch = pitched ? resource.pitch : 0;
    image.levels = {level};
  }
  if (request.has_view) {
    if (absl::Status narrowed = Narrow(request.view, &image); !narrowed.ok()) return narrowed;
  }
  if (absl::Status filled = FillSampler(request, &texture); !filled.ok()) return filled;
  std::shared_ptr<SpaceState> state = StateOf(space);
  const uint64_t handle = state->images().AddTexture(std::move(texture));
  return std::make_unique<RegisteredImage<ImageRegistry::TextureHolder>>(
      std::move(state), handle, &ImageRegistry::RemoveTexture);
}

absl::StatusOr<std::unique_ptr<ImageObject>> SoftImages::CreateSurface(AddressSpace& space,
                                                                       std::shared_ptr<Array> array,
                                                                       uint32_t level) {
  std::shared_ptr<SpaceState> state = StateOf(space);
  const uint64_t handle =
      state->images().AddSurface(ImageOf(static_cast<const SoftArray&>(*array), level, 1));
  return std::make_unique<RegisteredImage<ImageRegistry::SurfaceHolder>>(
      std::move(state), handle, &ImageRegistry::RemoveSurface);
}

absl::StatusOr<uint64_t> SoftImages::LinearTextureWidth(uint32_t, uint32_t) {
  return static_cast<uint64_t>(
      AttributeOf(properties_, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH));
}

}  // namespace detshare::soft
