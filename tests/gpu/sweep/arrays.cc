// Arrays, textures and surfaces.
#include "tests/gpu/sweep/sweep.h"

namespace sweep {
namespace {

CUarray_format AnyFormat() {
  return static_cast<CUarray_format>(
      numbers.Mostly<int>({1, 2, 3, 8, 9, 10, 16, 32},
                          {0, 4, 0xc0, 0xc2, 0xc5, 0x91, 0x97, 0x9d, 0xb0, 0x50, 0xff, 77}, 18));
}

unsigned AnyChannels() {
  return numbers.Mostly<unsigned>({1, 2, 4}, {0, 3, 5, 16, UINT32_MAX}, 10);
}

// At most one side is large, so that what is made stays small.
CUDA_ARRAY3D_DESCRIPTOR AnyArray() {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = numbers.Mostly<std::size_t>({1, 8, 64, 100}, {0, 65, 6}, 8);
  shape.Height = numbers.Mostly<std::size_t>({0, 1, 8, 64}, {2, 63, 6}, 8);
  shape.Depth = numbers.Mostly<std::size_t>({0, 0, 0, 4, 6, 8}, {1, 5, 12}, 10);
  const std::size_t large = numbers.Pick<std::size_t>(
      {16384, 16385, 32768, 32769, 65536, 65537, 131072, 131073, 1ull << 31, 1ull << 40, SIZE_MAX});
  const std::uint64_t side = numbers.Below(12);
  if (side == 0) {
    shape.Width = large;
    shape.Height %= 16;
    shape.Depth = 0;
  } else if (side == 1) {
    shape.Width %= 16;
    shape.Height = large;
    shape.Depth = 0;
  } else if (side == 2) {
    shape.Width = shape.Height = 1;
    shape.Depth = large;
  }
  shape.Format = AnyFormat();
  shape.NumChannels = AnyChannels();
  shape.Flags =
      numbers.Mostly<unsigned>({0, 0, 0, 1, 2, 3, 4, 5, 8, 6},
                               {0x10, 0x20, 0x40, 0x80, 0x100, 0x200, 7, UINT32_MAX, 0x41}, 15);
  const bool is_cube = numbers.Chance(80);
  if ((shape.Flags & CUDA_ARRAY3D_CUBEMAP) != 0 && shape.Width < 128 && is_cube) {
    shape.Height = shape.Width;
    shape.Depth = 6;
  }
  return shape;
}

void AskArray(CUarray array) {
  Out<CUDA_ARRAY_DESCRIPTOR> flat("descriptor");
  Out<CUDA_ARRAY3D_DESCRIPTOR> full("descriptor");
  Out<CUDA_ARRAY_MEMORY_REQUIREMENTS> needs("requirements");
  Out<CUDA_ARRAY_SPARSE_PROPERTIES> sparse("properties");
  Out<CUarray> plane("plane");
  CALL(cuArrayGetDescriptor, flat, array);
  CALL(cuArray3DGetDescriptor, full, array);
  CALL(cuArrayGetMemoryRequirements, needs, array, AnyDevice());
  CALL(cuArrayGetSparseProperties, sparse, array);
  CALL(cuArrayGetPlane, plane, array, numbers.Pick<unsigned>({0, 1, 2, 3}));
}

void OneArray() {
  Out<CUarray> array("array");
  CUDA_ARRAY3D_DESCRIPTOR shape = AnyArray();
  if (numbers.Chance(25)) {
    CUDA_ARRAY_DESCRIPTOR flat{shape.Width, shape.Height, shape.Format, shape.NumChannels};
    CALL(cuArrayCreate, array, RefOrNull(flat));
  } else {
    CALL(cuArray3DCreate, array, RefOrNull(shape));
  }
  const CUarray made = array.Or(nullptr);
  if (made == nullptr) return;
  NameHandle(made, "array");
  AskArray(made);
  CALL(cuArrayDestroy, made);
  NameHandle(made, nullptr);
}

void OneMipmap() {
  CUDA_ARRAY3D_DESCRIPTOR shape = AnyArray();
  Out<CUmipmappedArray> mipmap("mipmap");
  const unsigned count = numbers.Mostly<unsigned>({1, 2, 4, 7}, {0, 8, 100, UINT32_MAX});
  CALL(cuMipmappedArrayCreate, mipmap, Ref(shape), count);
  const CUmipmappedArray made = mipmap.Or(nullptr);
  if (made == nullptr) return;
  Out<CUDA_ARRAY_MEMORY_REQUIREMENTS> needs("requirements");
  Out<CUDA_ARRAY_SPARSE_PROPERTIES> sparse("properties");
  Out<CUarray> level("level");
  CALL(cuMipmappedArrayGetMemoryRequirements, needs, made, AnyDevice());
  CALL(cuMipmappedArrayGetSparseProperties, sparse, made);
  CALL(cuMipmappedArrayGetLevel, level, made,
       numbers.Mostly<unsigned>({0, 1, 2}, {count, count - 1, UINT32_MAX}));
  if (level.Or(nullptr) != nullptr) {
    NameHandle(level.value, "level");
    AskArray(level.value);
    CALL(cuArrayDestroy, level.value);
    NameHandle(level.value, nullptr);
  }
  CALL(cuMipmappedArrayDestroy, made);
}

CUarray plain = nullptr;
CUarray layered = nullptr;
CUarray writable = nullptr;
CUmipmappedArray mipmapped = nullptr;

void MakeArrays() {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = shape.Height = 32;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  if (cuArray3DCreate(&plain, &shape) != CUDA_SUCCESS) Note("no array");
  shape.Flags = CUDA_ARRAY3D_SURFACE_LDST;
  if (cuArray3DCreate(&writable, &shape) != CUDA_SUCCESS) Note("no array for surfaces");
  shape.Flags = 0;
  shape.NumChannels = 4;
  shape.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  if (cuMipmappedArrayCreate(&mipmapped, &shape, 4) != CUDA_SUCCESS) Note("no mipmapped array");
  shape.Depth = 3;
  shape.Flags = CUDA_ARRAY3D_LAYERED;
  if (cuArray3DCreate(&layered, &shape) != CUDA_SUCCESS) Note("no layered array");
  NameHandle(plain, "plain");
  NameHandle(layered, "layered");
  NameHandle(writable, "writable");
  NameHandle(mipmapped, "mipmapped");
}

void DestroyArrays() {
  for (const CUarray array : {plain, layered, writable})
    if (array != nullptr) cuArrayDestroy(array);
  if (mipmapped != nullptr) cuMipmappedArrayDestroy(mipmapped);
}

CUDA_RESOURCE_DESC AnyResource() {
  CUDA_RESOURCE_DESC resource{};
  int type = numbers.Mostly<int>({0, 0, 1, 2, 3}, {4, -1}, 4);
  const CUarray array = numbers.Pick<CUarray>({plain, layered, writable});
  if ((type == 0 && array == nullptr) || (type == 1 && mipmapped == nullptr)) type = 2;
  resource.resType = static_cast<CUresourcetype>(type);
  if (type == 0) resource.res.array.hArray = array;
  if (type == 1) resource.res.mipmap.hMipmappedArray = mipmapped;
  const Named<CUdeviceptr> place = numbers.Pick<Named<CUdeviceptr>>(
      {At(fix.device_memory, 0), At(fix.device_memory, 0), At(fix.device_memory, 512),
       At(fix.device_memory, 4), At(fix.device_memory, 16), At(fix.pinned, 0)});
  const CUarray_format format = AnyFormat();
  const unsigned channels = AnyChannels();
  const std::size_t size =
      numbers.Mostly<std::size_t>({4096, 64 * kKiB, 100}, {0, 1, 1ull << 32, 1ull << 40, SIZE_MAX});
  const std::size_t width = numbers.Mostly<std::size_t>({8, 16, 32}, {0, 1000, 1ull << 20});
  const std::size_t height = numbers.Mostly<std::size_t>({1, 8, 32}, {0, 1ull << 20});
  const std::size_t pitch = numbers.Mostly<std::size_t>({512, 1024}, {0, 16, 32, 100, 1ull << 31});
  if (type == 2) resource.res.linear = {place.value, format, channels, size};
  if (type == 3) resource.res.pitch2D = {place.value, format, channels, width, height, pitch};
  resource.flags = numbers.Mostly<unsigned>({0}, {1}, 4);
  return resource;
}

CUDA_TEXTURE_DESC AnyTexture() {
  CUDA_TEXTURE_DESC texture{};
  for (CUaddress_mode& mode : texture.addressMode)
    mode = static_cast<CUaddress_mode>(numbers.Mostly<int>({0, 1, 2, 3}, {4, -1}, 4));
  texture.filterMode = static_cast<CUfilter_mode>(numbers.Mostly<int>({0, 1}, {2, -1}, 5));
  texture.flags =
      numbers.Mostly<unsigned>({0, 1, 2, 3}, {4, 8, 0x10, 0x20, 0x40, 0x80, UINT32_MAX}, 20);
  texture.maxAnisotropy = numbers.Mostly<unsigned>({0, 1, 4, 16}, {17, UINT32_MAX}, 5);
  texture.mipmapFilterMode = static_cast<CUfilter_mode>(numbers.Mostly<int>({0, 1}, {2}, 5));
  texture.mipmapLevelBias = numbers.Mostly<float>({0, 0.5f}, {-100, 100}, 10);
  texture.minMipmapLevelClamp = numbers.Mostly<float>({0, 1}, {-1, 50}, 10);
  texture.maxMipmapLevelClamp = numbers.Mostly<float>({0, 3}, {-1, 50}, 10);
  texture.borderColor[0] = numbers.Mostly<float>({0, 1}, {-2, 1e30f}, 10);
  return texture;
}

CUDA_RESOURCE_VIEW_DESC AnyView() {
  CUDA_RESOURCE_VIEW_DESC view{};
  view.format = static_cast<CUresourceViewFormat>(
      numbers.Mostly<int>({0, 1, 3, 0x18, 0x16, 7}, {0x22, 0x23, 100, -1}, 10));
  view.width = numbers.Mostly<std::size_t>({32, 32, 16}, {0, 64}, 10);
  view.height = numbers.Mostly<std::size_t>({32, 32, 16}, {0, 64}, 10);
  view.depth = numbers.Mostly<std::size_t>({0, 0, 3}, {1}, 10);
  view.firstMipmapLevel = numbers.Mostly<unsigned>({0}, {1, 4}, 10);
  view.lastMipmapLevel = numbers.Mostly<unsigned>({0, 3}, {1, 4}, 10);
  view.firstLayer = numbers.Mostly<unsigned>({0}, {1, 4}, 10);
  view.lastLayer = numbers.Mostly<unsigned>({0, 2}, {1, 4}, 10);
  return view;
}

void OneTexture() {
  CUDA_RESOURCE_DESC resource = AnyResource();
  CUDA_TEXTURE_DESC texture = AnyTexture();
  CUDA_RESOURCE_VIEW_DESC view = AnyView();
  const Named<CUDA_RESOURCE_VIEW_DESC*> used =
      numbers.Chance(25) ? Ref(view) : As<CUDA_RESOURCE_VIEW_DESC*>(nullptr, "null");
  Out<CUtexObject> object("texture");
  CALL(cuTexObjectCreate, object, RefOrNull(resource), RefOrNull(texture), used);
  const CUtexObject made = object.Or(0);
  if (made == 0) return;
  Out<CUDA_RESOURCE_DESC> resource_back("resource");
  Out<CUDA_TEXTURE_DESC> texture_back("texture");
  Out<CUDA_RESOURCE_VIEW_DESC> view_back("view");
  CALL(cuTexObjectGetResourceDesc, resource_back, As(made, "texture"));
  CALL(cuTexObjectGetTextureDesc, texture_back, As(made, "texture"));
  CALL(cuTexObjectGetResourceViewDesc, view_back, As(made, "texture"));
  CALL(cuTexObjectDestroy, As(made, "texture"));
}

void OneSurface() {
  CUDA_RESOURCE_DESC resource = AnyResource();
  if (writable != nullptr && numbers.Chance(50)) {
    resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = writable;
  }
  Out<CUsurfObject> object("surface");
  CALL(cuSurfObjectCreate, object, RefOrNull(resource));
  const CUsurfObject made = object.Or(0);
  if (made == 0) return;
  Out<CUDA_RESOURCE_DESC> back("resource");
  CALL(cuSurfObjectGetResourceDesc, back, As(made, "surface"));
  CALL(cuSurfObjectDestroy, As(made, "surface"));
}

void SetReference(CUtexref reference) {
  const CUarray array = numbers.Pick<CUarray>({plain, layered, writable});
  switch (numbers.Below(12)) {
    case 0:
      if (array != nullptr)
        CALL(cuTexRefSetArray, reference, array, numbers.Mostly<unsigned>({1}, {0, 2}));
      break;
    case 1:
      if (mipmapped != nullptr)
        CALL(cuTexRefSetMipmappedArray, reference, mipmapped,
             numbers.Mostly<unsigned>({1}, {0, 2}));
      break;
    case 2: {
      Out<std::size_t> offset("offset");
      CALL(cuTexRefSetAddress, offset, reference,
           At(fix.device_memory, numbers.Mostly<std::int64_t>({0, 512}, {4, 100}, 30)),
           numbers.Mostly<std::size_t>({4096, 100}, {0, 1ull << 40}));
      break;
    }
    case 3: {
      CUDA_ARRAY_DESCRIPTOR flat{numbers.Mostly<std::size_t>({8, 32}, {0, 1000}), 8, AnyFormat(),
                                 AnyChannels()};
      CALL(cuTexRefSetAddress2D, reference, Ref(flat), At(fix.device_memory, 0),
           numbers.Mostly<std::size_t>({512, 1024}, {0, 16, 100}));
      break;
    }
    case 4:
      CALL(cuTexRefSetFormat, reference, AnyFormat(), static_cast<int>(AnyChannels()));
      break;
    case 5:
      CALL(cuTexRefSetAddressMode, reference, numbers.Mostly<int>({0, 1, 2}, {3, -1}),
           numbers.Mostly<int>({0, 1, 2, 3}, {4, -1}));
      break;
    case 6:
      CALL(cuTexRefSetFilterMode, reference, numbers.Mostly<int>({0, 1}, {2, -1}));
      break;
    case 7:
      CALL(cuTexRefSetMipmapFilterMode, reference, numbers.Mostly<int>({0, 1}, {2, -1}));
      break;
    case 8:
      CALL(cuTexRefSetMipmapLevelBias, reference, numbers.Pick<float>({0, 1, -100, 100}));
      break;
    case 9:
      CALL(cuTexRefSetMipmapLevelClamp, reference, numbers.Pick<float>({0, 1, -1}),
           numbers.Pick<float>({0, 3, 100}));
      break;
    case 10:
      CALL(cuTexRefSetMaxAnisotropy, reference, numbers.Mostly<unsigned>({0, 1, 16}, {17, 1000}));
      break;
    default:
      CALL(cuTexRefSetFlags, reference,
           numbers.Mostly<unsigned>({0, 1, 2, 3}, {4, 8, 0x10, UINT32_MAX}, 30));
  }
}

}  // namespace

void Arrays() {
  while (NextRound(130)) {
    if (numbers.Below(3) == 2) {
      OneMipmap();
    } else {
      OneArray();
    }
  }
}

void Textures() {
  MakeArrays();
  while (NextRound(150)) {
    if (numbers.Below(4) == 3) {
      OneSurface();
    } else {
      OneTexture();
    }
  }
  DestroyArrays();
}

void TensorMaps() {
  while (NextRound(250)) {
    alignas(256) unsigned char space[512];
    std::memset(space, kPattern, sizeof space);
    // The type wants 128 bytes of alignment since CUDA 13; the documentation says 64.
    const std::uint64_t at = numbers.Mostly<std::uint64_t>({0, 128}, {64, 192, 32, 16, 8}, 20);
    unsigned char(&map)[128] = *reinterpret_cast<unsigned char(*)[128]>(space + at);
    const unsigned rank = numbers.Mostly<unsigned>({1, 2, 3, 4, 5}, {0, 6}, 5);
    const int type =
        numbers.Mostly<int>({0, 1, 2, 3, 6, 7, 8, 9, 11}, {4, 5, 10, 12, 13, 14, 15, 16, -1});
    std::uint64_t sizes[8], strides[8];
    std::uint32_t box[8], steps[8];
    int lower[8], upper[8];
    std::string text;
    std::uint64_t stride = 256;
    for (unsigned i = 0; i < 8; ++i) {
      sizes[i] =
          numbers.Mostly<std::uint64_t>({16, 32, 64, 8}, {0, 1, 1ull << 32, (1ull << 32) + 1}, 4);
      strides[i] = numbers.Mostly<std::uint64_t>({stride}, {0, 8, 16, stride + 4, 1ull << 40}, 4);
      stride *= 64;
      box[i] = numbers.Mostly<std::uint32_t>({8, 16, 4}, {0, 1, 64, 256, 257}, 5);
      steps[i] = numbers.Mostly<std::uint32_t>({1, 1, 1, 2}, {0, 8, 9}, 3);
      lower[i] = numbers.Mostly<int>({0, -1}, {-129, 127, -16}, 5);
      upper[i] = numbers.Mostly<int>({0, -1}, {-129, 127, 16}, 5);
      if (i < rank)
        text += Format("%llu/%llu/%u/%u ", static_cast<unsigned long long>(sizes[i]),
                       static_cast<unsigned long long>(strides[i]), box[i], steps[i]);
    }
    // The address is part of the map and differs from run to run, so it is a fixed one: the map is
    // never used.
    const std::uint64_t address =
        numbers.Mostly<std::uint64_t>({0x7f0000000000, 0x7f0000000100}, {0, 0x7f0000000008}, 8);
    const auto place = As(reinterpret_cast<void*>(address),
                          Format("0x%llx", static_cast<unsigned long long>(address)));
    const auto output = As(reinterpret_cast<CUtensorMap*>(map),
                           Format("map+%llu", static_cast<unsigned long long>(at)));
    const int interleave = numbers.Mostly<int>({0, 0, 0, 1, 2}, {3, -1}, 4);
    const int swizzle = numbers.Mostly<int>({0, 1, 2, 3}, {4, 5, 6, 7, -1}, 10);
    const int promotion = numbers.Mostly<int>({0, 1, 2, 3}, {4, -1}, 4);
    const int fill = numbers.Mostly<int>({0, 0, 0, 1}, {2, -1}, 4);
    switch (numbers.Below(4)) {
      case 0:
        CALL(cuTensorMapEncodeIm2col, output, type, rank, place, As(sizes, "{" + text + "}"),
             As(strides, "strides"), As(lower, Format("{%d,%d,%d}", lower[0], lower[1], lower[2])),
             As(upper, Format("{%d,%d,%d}", upper[0], upper[1], upper[2])),
             numbers.Mostly<unsigned>({8, 16, 64}, {0, 256, 257}),
             numbers.Mostly<unsigned>({8, 64, 1024}, {0, 1025}), As(steps, "steps"), interleave,
             swizzle, promotion, fill);
        break;
      case 1:
        if (numbers.Chance(40)) {
          CALL(cuTensorMapEncodeIm2colWide, output, type, rank, place, As(sizes, "{" + text + "}"),
               As(strides, "strides"), lower[0], upper[0],
               numbers.Mostly<unsigned>({8, 16, 64}, {0, 256, 257}),
               numbers.Mostly<unsigned>({8, 64, 1024}, {0, 1025}), As(steps, "steps"), interleave,
               numbers.Mostly<int>({0, 1}, {2}), swizzle, promotion, fill);
          break;
        }
        [[fallthrough]];
      default:
        CALL(cuTensorMapEncodeTiled, output, type, rank, place, As(sizes, "{" + text + "}"),
             As(strides, "strides"), As(box, "box"), As(steps, "steps"), interleave, swizzle,
             promotion, fill);
    }
    Note(IsUntouched(map)
             ? "map: untouched"
             : Format("map: %llx", static_cast<unsigned long long>(Digest(map, sizeof map))));
    if (numbers.Chance(20)) {
      CALL(cuTensorMapReplaceAddress, output,
           As(reinterpret_cast<void*>(address + 256), "address+0x100"));
      Note(Format("map: %llx", static_cast<unsigned long long>(Digest(map, sizeof map))));
    }
  }
}

}  // namespace sweep
