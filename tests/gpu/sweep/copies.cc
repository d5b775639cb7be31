// Copies and memsets. After each the memory is compared by its digest.
#include "tests/gpu/sweep/sweep.h"

namespace sweep {
namespace {

CUarray flat = nullptr;
CUarray cube = nullptr;
CUmipmappedArray levels = nullptr;
CUarray level = nullptr;

void MakeArrays() {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = 64;
  shape.Height = 32;
  shape.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  shape.NumChannels = 1;
  if (cuArray3DCreate(&flat, &shape) != CUDA_SUCCESS) Note("no array");
  shape.Depth = 8;
  shape.Height = 16;
  if (cuArray3DCreate(&cube, &shape) != CUDA_SUCCESS) Note("no array of three dimensions");
  shape.Depth = 0;
  if (cuMipmappedArrayCreate(&levels, &shape, 3) == CUDA_SUCCESS)
    cuMipmappedArrayGetLevel(&level, levels, 1);
  NameHandle(flat, "flat");
  NameHandle(cube, "cube");
  NameHandle(level, "level");
}

// The same bytes before each round.
void Reset() {
  auto* host = reinterpret_cast<std::uint32_t*>(fix.host.base);
  const std::size_t words = fix.device_memory.size / 4;
  for (std::size_t i = 0; i < 2 * words; ++i) host[i] = static_cast<std::uint32_t>(i * 2654435761u);
  auto* pinned = reinterpret_cast<std::uint32_t*>(fix.pinned.base);
  if (pinned != nullptr) std::memset(pinned, 0x11, fix.pinned.size);
  cuMemcpyHtoD(fix.device_memory.base, host + words, fix.device_memory.size);
  cuMemsetD8(fix.second.base, 0x22, fix.second.size);
  cuMemsetD8(fix.managed.base, 0x33, fix.managed.size);
  if (flat != nullptr) {
    CUDA_MEMCPY3D fill{};
    fill.srcMemoryType = CU_MEMORYTYPE_HOST;
    fill.srcHost = host;
    fill.srcPitch = 256;
    fill.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    fill.dstArray = flat;
    fill.WidthInBytes = 256;
    fill.Height = 32;
    fill.Depth = 1;
    cuMemcpy3D(&fill);
    if (cube != nullptr) {
      fill.dstArray = cube;
      fill.srcHeight = fill.Height = 16;
      fill.Depth = 8;
      cuMemcpy3D(&fill);
    }
  }
  cuCtxSynchronize();
}

// What is in all memory that a copy may have written.
void NoteContents() {
  static std::vector<unsigned char> bytes(fix.device_memory.size);
  std::string text = "contents:";
  for (const Region* region : {&fix.device_memory, &fix.second, &fix.managed}) {
    if (region->base == 0) continue;
    const CUresult result = cuMemcpyDtoH(bytes.data(), region->base, region->size);
    if (result != CUDA_SUCCESS) text += " " + ErrorName(result);
    text += Format(" %s=%llx", region->name.c_str(),
                   static_cast<unsigned long long>(Digest(bytes.data(), region->size)));
  }
  for (const CUarray array : {flat, cube}) {
    if (array == nullptr) continue;
    CUDA_MEMCPY3D read{};
    read.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    read.srcArray = array;
    read.dstMemoryType = CU_MEMORYTYPE_HOST;
    read.dstHost = bytes.data();
    read.dstPitch = read.WidthInBytes = 256;
    read.dstHeight = read.Height = array == flat ? 32 : 16;
    read.Depth = array == flat ? 1 : 8;
    cuMemcpy3D(&read);
    text += Format(" %llx", static_cast<unsigned long long>(
                                Digest(bytes.data(), 256 * read.Height * read.Depth)));
  }
  for (const Region* region : {&fix.pinned, &fix.host})
    text += Format(
        " %s=%llx", region->name.c_str(),
        static_cast<unsigned long long>(Digest(reinterpret_cast<void*>(region->base),
                                               region->base == 0 ? 0 : fix.device_memory.size)));
  Note(text);
}

// A host pointer behind which a copy of the largest device memory has room.
Named<CUdeviceptr> HostPlace() {
  return At(fix.host, static_cast<std::int64_t>(
                          numbers.Pick<std::uint64_t>({0, 1, 4, 100, 4096, numbers.Below(65536)})));
}

Named<CUdeviceptr> DevicePlace() {
  return numbers.Chance(60) ? Somewhere(fix.device_memory) : Somewhere(fix.second);
}

// Where two ranges overlap, the contents after the copy are not defined.
bool Overlap(CUdeviceptr first, CUdeviceptr second, std::size_t size) {
  return first != second && first < second + size && second < first + size;
}

// Sizes that device memory allows, or that it certainly refuses.
std::size_t CopySize() { return AnySize(numbers.Pick<std::size_t>({64, 4096, 64 * kKiB})); }

// For cuMemcpy(), behind which the sizes of Copy1D() have room.
Named<CUdeviceptr> AnyUnified() {
  return numbers.Pick<Named<CUdeviceptr>>({DevicePlace(), At(fix.pinned, 64), At(fix.managed, 256),
                                           At(fix.host, 128 * kKiB), At(fix.registered, 0)});
}

void Copy1D() {
  std::size_t size = CopySize();
  const bool async = numbers.Chance(40);
  const Named<CUstream> stream = AnyStream();
  const Named<CUdeviceptr> to = numbers.Chance(3) ? As<CUdeviceptr>(0, "null") : DevicePlace();
  const Named<CUdeviceptr> from = numbers.Chance(3) ? As<CUdeviceptr>(0, "null") : DevicePlace();
  const Named<CUdeviceptr> host = HostPlace();
  const int kind = static_cast<int>(numbers.Below(6));
  // The driver reads and writes the host's memory before it compares the size with an allocation's.
  if (async && kind < 2 && size > fix.device_memory.size) size = 0;
  switch (kind) {
    case 0:
      if (async) {
        CALL(cuMemcpyHtoDAsync, to, host, size, stream);
      } else {
        CALL(cuMemcpyHtoD, to, host, size);
      }
      break;
    case 1:
      if (async) {
        CALL(cuMemcpyDtoHAsync, host, from, size, stream);
      } else {
        CALL(cuMemcpyDtoH, host, from, size);
      }
      break;
    case 2:
      if (Overlap(to.value, from.value, size)) size = 0;
      if (async) {
        CALL(cuMemcpyDtoDAsync, to, from, size, stream);
      } else {
        CALL(cuMemcpyDtoD, to, from, size);
      }
      break;
    case 3: {
      const Named<CUdeviceptr> first = AnyUnified(), second = AnyUnified();
      if (size > 64 * kKiB || Overlap(first.value, second.value, size)) size = 0;
      if (async) {
        CALL(cuMemcpyAsync, first, second, size, stream);
      } else {
        CALL(cuMemcpy, first, second, size);
      }
      break;
    }
    default: {
      const CUcontext to_context = numbers.Mostly<CUcontext>({fix.context}, {nullptr}, 6);
      if (Overlap(to.value, from.value, size)) size = 0;
      if (async) {
        CALL(cuMemcpyPeerAsync, to, to_context, from, fix.context, size, stream);
      } else {
        CALL(cuMemcpyPeer, to, to_context, from, fix.context, size);
      }
    }
  }
}

void CopyArray1D() {
  if (flat == nullptr) return;
  const std::size_t size =
      numbers.Mostly<std::size_t>({4, 64, 256}, {0, 1, 3, 257, 8192, SIZE_MAX});
  const std::size_t offset = numbers.Mostly<std::size_t>({0, 4, 64}, {1, 252, 256, 8192, 1u << 20});
  const CUarray array = numbers.Mostly<CUarray>({flat}, {cube == nullptr ? flat : cube}, 15);
  switch (numbers.Below(5)) {
    case 0:
      CALL(cuMemcpyHtoA, array, offset, HostPlace(), size);
      break;
    case 1:
      CALL(cuMemcpyAtoH, HostPlace(), array, offset, size);
      break;
    case 2:
      CALL(cuMemcpyDtoA, array, offset, DevicePlace(), size);
      break;
    case 3:
      CALL(cuMemcpyAtoD, DevicePlace(), array, offset, size);
      break;
    default:
      // Inside of one array the two ranges may overlap.
      CALL(cuMemcpyAtoA, array, offset, array, offset, size);
  }
}

// Half of a descriptor. Host memory beyond the buffer would crash, so its fields stay small.
struct Half {
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  void* host = nullptr;
  CUdeviceptr device = 0;
  CUarray array = nullptr;
  std::size_t pitch = 0, height = 0, x = 0, y = 0, z = 0;
};

Half AnyHalf(bool source, bool three) {
  Half half;
  half.type = static_cast<CUmemorytype>(numbers.Mostly<int>({1, 2, 2, 3, 4}, {0, 5, 100}, 4));
  // The source is at the front, the destination behind it.
  const std::int64_t base = source ? 0 : 128 * kKiB;
  half.pitch = numbers.Mostly<std::size_t>({256, 512, 256, 1024}, {0, 1, 100, 255, 2048}, 15);
  half.height = numbers.Mostly<std::size_t>({16, 32, 16}, {0, 1, 3, 64}, 15);
  half.x = numbers.Mostly<std::size_t>({0, 0, 4, 16}, {1, 255, 256}, 12);
  half.y = numbers.Mostly<std::size_t>({0, 0, 1, 2}, {15, 16, 32}, 12);
  if (three) half.z = numbers.Mostly<std::size_t>({0, 0, 1}, {7, 8}, 12);
  if (half.type == CU_MEMORYTYPE_HOST) {
    half.host = reinterpret_cast<void*>(fix.host.base + static_cast<std::uint64_t>(base));
  } else if (half.type == CU_MEMORYTYPE_UNIFIED) {
    half.device =
        numbers
            .Pick<Named<CUdeviceptr>>(
                {At(fix.device_memory, base), At(fix.device_memory, base + 64), At(fix.host, base)})
            .value;
  } else if (half.type == CU_MEMORYTYPE_ARRAY) {
    half.array = numbers.Pick<CUarray>({flat, cube, level});
    if (half.array == nullptr) half.type = static_cast<CUmemorytype>(0);
  } else {
    half.device =
        At(fix.device_memory, base + numbers.Mostly<std::int64_t>({0, 256, 64}, {1, 3})).value;
    // The driver sees how large device memory is.
    half.pitch = numbers.Mostly<std::size_t>({half.pitch}, {SIZE_MAX, 1ull << 31, 1ull << 40}, 4);
    half.y = numbers.Mostly<std::size_t>({half.y}, {1ull << 31, 1ull << 20}, 4);
  }
  return half;
}

template <typename T>
void Fill2D(T* copy, const Half& from, const Half& to) {
  copy->srcMemoryType = from.type;
  copy->srcHost = from.host;
  copy->srcDevice = from.device;
  copy->srcArray = from.array;
  copy->srcPitch = from.pitch;
  copy->srcXInBytes = from.x;
  copy->srcY = from.y;
  copy->dstMemoryType = to.type;
  copy->dstHost = to.host;
  copy->dstDevice = to.device;
  copy->dstArray = to.array;
  copy->dstPitch = to.pitch;
  copy->dstXInBytes = to.x;
  copy->dstY = to.y;
  copy->WidthInBytes = numbers.Mostly<std::size_t>({64, 128, 200, 240}, {0, 1, 255, 256, 1000}, 15);
  copy->Height = numbers.Mostly<std::size_t>({1, 4, 8, 13}, {0, 16, 17, 33}, 15);
}

template <typename T>
void Fill3D(T* copy) {
  const Half from = AnyHalf(true, true), to = AnyHalf(false, true);
  Fill2D(copy, from, to);
  copy->srcHeight = from.height;
  copy->srcZ = from.z;
  copy->dstHeight = to.height;
  copy->dstZ = to.z;
  copy->srcLOD = numbers.Mostly<std::size_t>({0}, {1}, 2);
  copy->Depth = numbers.Mostly<std::size_t>({1, 2, 4}, {0, 8, 9}, 15);
}

void Copy2D() {
  CUDA_MEMCPY2D copy{};
  Fill2D(&copy, AnyHalf(true, false), AnyHalf(false, false));
  switch (numbers.Below(3)) {
    case 0:
      CALL(cuMemcpy2D, Ref(copy));
      break;
    case 1:
      CALL(cuMemcpy2DUnaligned, Ref(copy));
      break;
    default:
      CALL(cuMemcpy2DAsync, Ref(copy), AnyStream());
  }
}

void Copy3D() {
  if (numbers.Chance(25)) {
    CUDA_MEMCPY3D_PEER copy{};
    Fill3D(&copy);
    copy.srcContext = copy.dstContext = fix.context;
    if (numbers.Chance(70)) {
      CALL(cuMemcpy3DPeer, Ref(copy));
    } else {
      CALL(cuMemcpy3DPeerAsync, Ref(copy), AnyStream());
    }
    return;
  }
  CUDA_MEMCPY3D copy{};
  Fill3D(&copy);
  if (numbers.Chance(3)) copy.reserved0 = &copy;
  if (numbers.Chance(70)) {
    CALL(cuMemcpy3D, Ref(copy));
  } else {
    CALL(cuMemcpy3DAsync, Ref(copy), AnyStream());
  }
}

CUmemcpySrcAccessOrder AnyOrder() {
  return static_cast<CUmemcpySrcAccessOrder>(numbers.Mostly<int>({1, 2, 3}, {0, 4, -1}));
}

void CopyBatch() {
  CUdeviceptr to[4], from[4];
  std::size_t sizes[4];
  std::size_t indices[4] = {0, 1, 2, 3};
  CUmemcpyAttributes attributes[4] = {};
  const std::size_t count = numbers.Mostly<std::size_t>({1, 2, 3, 4}, {0}, 5);
  std::string text, orders;
  for (std::size_t i = 0; i < 4; ++i) {
    // Each copy has places of its own, because their order is not defined.
    const auto base = static_cast<std::int64_t>(i * 8 * kKiB);
    const Named<CUdeviceptr> first = numbers.Pick<Named<CUdeviceptr>>(
        {At(fix.second, base), At(fix.second, base + 4), At(fix.pinned, base), At(fix.host, base)});
    const Named<CUdeviceptr> second = numbers.Pick<Named<CUdeviceptr>>(
        {At(fix.device_memory, base), At(fix.managed, base), At(fix.host, 256 * 1024 + base)});
    to[i] = first.value;
    from[i] = second.value;
    sizes[i] = numbers.Mostly<std::size_t>({4, 64, 4096}, {0, 1}, 5);
    attributes[i].srcAccessOrder = AnyOrder();
    attributes[i].flags = numbers.Mostly<unsigned>({0, 1}, {2, UINT32_MAX}, 8);
    if (numbers.Chance(10)) attributes[i].srcLocHint = AnyLocation();
    if (numbers.Chance(10)) indices[i] = numbers.Below(5);
    if (i < count) text += first.text + "<" + second.text + ":" + Show(sizes[i]) + " ";
    orders += Show(indices[i]) + ":" + Show(attributes[i].srcAccessOrder) + "/" +
              Show(attributes[i].flags) + "@" + Show(attributes[i].srcLocHint) + " ";
  }
  const std::size_t given = numbers.Mostly<std::size_t>({1, 1, 1, count}, {0, 2, 4}, 15);
  CALL(cuMemcpyBatchAsync, As(to, text), As(from, "from"), As(sizes, "sizes"), count,
       As(attributes, orders), As(indices, "indices"), given > 4 ? 4 : given,
       numbers.Chance(80) ? As(fix.stream, "stream") : AnyStream());
}

CUmemcpy3DOperand AnyOperand(bool source) {
  CUmemcpy3DOperand operand{};
  const Half half = AnyHalf(source, true);
  if (half.type == CU_MEMORYTYPE_ARRAY) {
    operand.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    operand.op.array.array = half.array;
    operand.op.array.offset = {half.x / 4, half.y, half.z};
  } else {
    operand.type = static_cast<CUmemcpy3DOperandType>(
        numbers.Mostly<int>({CU_MEMCPY_OPERAND_TYPE_POINTER}, {0, 3}, 4));
    operand.op.ptr.ptr =
        At(numbers.Chance(70) ? fix.device_memory : fix.host, source ? 0 : 128 * kKiB).value;
    operand.op.ptr.rowLength = numbers.Mostly<std::size_t>({0, 32, 64}, {1, 7}, 10);
    operand.op.ptr.layerHeight = numbers.Mostly<std::size_t>({0, 16}, {1, 3}, 10);
    if (numbers.Chance(15)) operand.op.ptr.locHint = AnyLocation();
  }
  return operand;
}

std::string ShowOperand(const CUmemcpy3DOperand& operand) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
    return Show(static_cast<const void*>(operand.op.array.array)) + " at " +
           Show(operand.op.array.offset.x) + "," + Show(operand.op.array.offset.y) + "," +
           Show(operand.op.array.offset.z);
  return "type=" + Show(operand.type) + " " + Show(operand.op.ptr.ptr) + " " +
         Show(operand.op.ptr.rowLength) + "," + Show(operand.op.ptr.layerHeight) + " " +
         Show(operand.op.ptr.locHint);
}

void CopyBatch3D() {
  CUDA_MEMCPY3D_BATCH_OP copy{};
  copy.src = AnyOperand(true);
  copy.dst = AnyOperand(false);
  copy.extent = {numbers.Mostly<std::size_t>({8, 16, 32}, {0, 1, 100}),
                 numbers.Mostly<std::size_t>({1, 4, 8}, {0, 33}),
                 numbers.Mostly<std::size_t>({1, 2}, {0, 9})};
  copy.srcAccessOrder = AnyOrder();
  copy.flags = numbers.Mostly<unsigned>({0}, {1, 2});
  CALL(cuMemcpy3DBatchAsync, numbers.Mostly<std::size_t>({1}, {0}, 5),
       As(&copy, "{src: " + ShowOperand(copy.src) + " dst: " + ShowOperand(copy.dst) + " " +
                     Show(copy.extent.width) + "x" + Show(copy.extent.height) + "x" +
                     Show(copy.extent.depth) + " order=" + Show(copy.srcAccessOrder) +
                     " flags=" + Show(copy.flags) + "}"),
       numbers.Mostly<unsigned>({0}, {1}, 5),
       numbers.Chance(80) ? As(fix.stream, "stream") : AnyStream());
}

void Memset() {
  const Named<CUdeviceptr> to = numbers.Chance(75)   ? DevicePlace()
                                : numbers.Chance(80) ? At(fix.managed, 64)
                                                     : AnyPointer();
  // Memory that the driver does not know must not be written from the GPU.
  const bool unknown = to.text == "0x1" || to.text == "~0" ||
                       (to.value >= fix.host.base && to.value < fix.host.base + fix.host.size);
  // The driver does not compare the size with an allocation's: the GPU would have a fault.
  const std::size_t size = numbers.Mostly<std::size_t>({1, 4, 63, 1024, 4096}, {0});
  const std::size_t pitch = numbers.Mostly<std::size_t>({64, 256, 512, 1024}, {0, 1, 3, 100});
  const std::size_t width = numbers.Mostly<std::size_t>({1, 16, 50, 64}, {0, 257});
  const std::size_t height = numbers.Mostly<std::size_t>({1, 2, 8, 16}, {0});
  const auto value = static_cast<unsigned>(numbers.Next());
  const auto small = static_cast<unsigned char>(value);
  const auto middle = static_cast<unsigned short>(value);
  const Named<CUstream> stream = AnyStream();
  if (unknown) return;
  switch (numbers.Below(12)) {
    case 0:
      CALL(cuMemsetD8, to, small, size);
      break;
    case 1:
      CALL(cuMemsetD16, to, middle, size);
      break;
    case 2:
      CALL(cuMemsetD32, to, value, size);
      break;
    case 3:
      CALL(cuMemsetD2D8, to, pitch, small, width, height);
      break;
    case 4:
      CALL(cuMemsetD2D16, to, pitch, middle, width, height);
      break;
    case 5:
      CALL(cuMemsetD2D32, to, pitch, value, width, height);
      break;
    case 6:
      CALL(cuMemsetD8Async, to, small, size, stream);
      break;
    case 7:
      CALL(cuMemsetD16Async, to, middle, size, stream);
      break;
    case 8:
      CALL(cuMemsetD32Async, to, value, size, stream);
      break;
    case 9:
      CALL(cuMemsetD2D8Async, to, pitch, small, width, height, stream);
      break;
    case 10:
      CALL(cuMemsetD2D16Async, to, pitch, middle, width, height, stream);
      break;
    default:
      CALL(cuMemsetD2D32Async, to, pitch, value, width, height, stream);
  }
}

void Rounds(int count, void (*first)(), void (*second)()) {
  MakeArrays();
  while (NextRound(count)) {
    Reset();
    (numbers.Below(4) == 3 ? second : first)();
    Settle();
    NoteContents();
  }
  for (const CUarray array : {flat, cube, level}) NameHandle(array, nullptr);
  if (flat != nullptr) cuArrayDestroy(flat);
  if (cube != nullptr) cuArrayDestroy(cube);
  if (levels != nullptr) cuMipmappedArrayDestroy(levels);
  flat = cube = level = nullptr;
  levels = nullptr;
}

}  // namespace

void Copies() { Rounds(200, Copy1D, CopyArray1D); }
void Copies2D() { Rounds(200, Copy2D, Copy2D); }
void Copies3D() { Rounds(250, Copy3D, Copy3D); }
void CopyBatches() { Rounds(160, CopyBatch, CopyBatch3D); }
void Memsets() { Rounds(200, Memset, Memset); }

}  // namespace sweep
