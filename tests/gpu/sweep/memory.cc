// Memory: allocation, registration, attributes of pointers, managed memory, and what other
// processes may open.
#include <unistd.h>

#include "tests/gpu/sweep/sweep.h"

namespace sweep {
namespace {

void AllocateDevice() {
  Out<CUdeviceptr> memory("memory");
  if (numbers.Chance(50)) {
    CALL(cuMemAlloc, memory.MaybeNull(), AnySize(numbers.Pick<std::size_t>({64, kMiB, 4 * kMiB})));
  } else {
    Out<std::size_t> pitch("pitch");
    CALL(cuMemAllocPitch, memory.MaybeNull(), pitch,
         AnySize(numbers.Pick<std::size_t>({1, 100, 512, 3000})), AnySize(64),
         numbers.Mostly<unsigned>({4, 8, 16}, {0, 1, 2, 3, 32, UINT32_MAX}));
  }
  const CUdeviceptr made = memory.Or(0);
  if (made == 0) return;
  AddRegion({"new", made, 4 * kMiB});
  Out<CUdeviceptr> base("base");
  Out<std::size_t> size("size");
  CALL(cuMemGetAddressRange, base, size, As(made, "new"));
  const std::uint64_t offset = numbers.Pick<std::uint64_t>({0, 0, 0, 1, 4, 256});
  CALL(cuMemFree, As(made + offset, Format("new+0x%llx", static_cast<unsigned long long>(offset))));
  // Twice: the second must fail.
  if (offset == 0 && numbers.Chance(30)) CALL(cuMemFree, As(made, "new"));
  if (offset != 0) CALL(cuMemFree, As(made, "new"));
  RemoveRegion("new");
}

void AllocateHost() {
  Out<void*> memory("memory");
  // Only sizes that fail at once: a host may try for long to give a terabyte.
  std::size_t size = AnySize(64 * kKiB);
  if (size == std::size_t{1} << 40) size = std::size_t{1} << 62;
  if (numbers.Chance(75)) {
    CALL(cuMemHostAlloc, memory.MaybeNull(), size, AnyFlags(7));
  } else {
    CALL(cuMemAllocHost, memory.MaybeNull(), size);
  }
  void* const made = memory.Or(nullptr);
  if (made == nullptr) return;
  const auto address = reinterpret_cast<CUdeviceptr>(made);
  AddRegion({"new", address, 64 * kKiB});
  Out<unsigned> flags("flags");
  Out<CUdeviceptr> device("device"), base("base");
  Out<std::size_t> range("size");
  CALL(cuMemHostGetFlags, flags, As(made, "new"));
  CALL(cuMemHostGetDevicePointer, device, As(made, "new"), numbers.Mostly<unsigned>({0}, {1, 2}));
  CALL(cuMemGetAddressRange, base, range, As(address, "new"));
  // The wrong way first, once in a while.
  if (numbers.Chance(10)) CALL(cuMemHostUnregister, As(made, "new"));
  CALL(cuMemFreeHost, As(made, "new"));
  CALL(cuMemHostGetFlags, flags, As(made, "new"));
  RemoveRegion("new");
}

void Register() {
  // The first half stays free of other registrations.
  const std::int64_t offset =
      numbers.Mostly<std::int64_t>({0, 4096, 8192, 65536}, {1, 4, 100, 4095, 12}, 25);
  const std::size_t size = numbers.Mostly<std::size_t>({4096, 8192, 65536, 100, 5000},
                                                       {0, 1, 4095, 4097, SIZE_MAX, 1ull << 60});
  const Named<CUdeviceptr> place = At(fix.host, 2 * kMiB + offset);
  const CUresult result =
      CALL(cuMemHostRegister, numbers.Chance(3) ? As<CUdeviceptr>(0, "null") : place, size,
           AnyFlags(numbers.Chance(20) ? 0xb : 3));
  Out<unsigned> flags("flags");
  Out<CUdeviceptr> device("device"), base("base");
  Out<std::size_t> range("size");
  const Named<CUdeviceptr> inner = At(fix.host, 2 * kMiB + offset + 8);
  CALL(cuMemHostGetFlags, flags, numbers.Pick({place, inner}));
  CALL(cuMemHostGetDevicePointer, device, numbers.Pick({place, inner}),
       numbers.Mostly<unsigned>({0}, {1}));
  CALL(cuMemGetAddressRange, base, range, numbers.Pick({place, inner}));
  if (numbers.Chance(30)) CALL(cuMemHostRegister, numbers.Pick({place, inner}), 4096, 0);
  if (numbers.Chance(30)) CALL(cuMemHostUnregister, inner);
  CALL(cuMemHostUnregister, place);
  if (result == CUDA_SUCCESS && numbers.Chance(30)) CALL(cuMemHostUnregister, place);
  // The second registration may have been the one that worked.
  cuMemHostUnregister(reinterpret_cast<void*>(inner.value));
}

void AskMemory() {
  Out<CUdeviceptr> base("base"), device("device");
  Out<std::size_t> size("size");
  Out<unsigned> flags("flags");
  switch (numbers.Below(5)) {
    case 0:
      CALL(cuMemGetAddressRange, base.MaybeNull(), size.MaybeNull(), AnyPointer());
      break;
    case 1:
      CALL(cuMemHostGetFlags, flags, AnyPointer());
      break;
    case 2:
      CALL(cuMemHostGetDevicePointer, device, AnyPointer(), numbers.Mostly<unsigned>({0}, {1, 2}));
      break;
    case 3:
      CALL(cuMemGetInfo, Out<std::size_t>("free", Shown::kHidden), size);
      break;
    default: {
      const Named<CUdeviceptr> pointer =
          numbers.Pick<Named<CUdeviceptr>>({{0, "null"},
                                            {1, "0x1"},
                                            At(fix.device_memory, 4),
                                            At(fix.device_memory, 4096),
                                            At(fix.pinned, 64),
                                            At(fix.host, 0),
                                            At(fix.managed, 64)});
      if (numbers.Chance(70)) {
        CALL(cuMemFree, pointer);
      } else {
        CALL(cuMemFreeHost, pointer);
      }
    }
  }
}

void AllocateManaged() {
  Out<CUdeviceptr> memory("memory");
  std::size_t size = AnySize(kMiB);
  // Managed memory of such sizes may really be given.
  if (size > 64 * kMiB && size < std::size_t{1} << 60) size = 3;
  CALL(cuMemAllocManaged, memory.MaybeNull(), size,
       numbers.Mostly<unsigned>({1, 2}, {0, 3, 4, 5, 8, UINT32_MAX}, 25));
  const CUdeviceptr made = memory.Or(0);
  if (made == 0) return;
  AddRegion({"new", made, kMiB});
  Out<CUdeviceptr> base("base"), device("device");
  Out<std::size_t> range("size");
  Out<unsigned> flags("flags");
  CALL(cuMemGetAddressRange, base, range, As(made, "new"));
  CALL(cuMemHostGetFlags, flags, As(made, "new"));
  CALL(cuMemHostGetDevicePointer, device, As(made, "new"), 0);
  if (numbers.Chance(10)) CALL(cuMemFreeHost, As(made, "new"));
  CALL(cuMemFree, As(made, "new"));
  RemoveRegion("new");
}

Named<CUdeviceptr> ManagedPlace() {
  return numbers.Chance(85)
             ? At(fix.managed, static_cast<std::int64_t>(
                                   numbers.Mostly<std::int64_t>({0, 4096, 65536}, {1, 100})))
             : AnyPointer();
}

void Advise() {
  const Named<CUdeviceptr> place = ManagedPlace();
  const std::size_t size = numbers.Mostly<std::size_t>({4096, 65536, 131072}, {0, 1, 100, kMiB});
  const CUmemLocation location = AnyLocation();
  switch (numbers.Below(4)) {
    case 0:
      CALL(cuMemAdvise, place, size, numbers.Mostly<int>({1, 2, 3, 4, 5, 6}, {0, 7, -1, 100}),
           As(location, "{" + Show(location) + "}"));
      break;
    case 1:
      CALL(cuMemPrefetchAsync, place, size, As(location, "{" + Show(location) + "}"),
           numbers.Mostly<unsigned>({0}, {1}), AnyStream());
      Settle();
      break;
    default: {
      int values[4];
      std::memset(values, kPattern, sizeof values);
      CALL(cuMemRangeGetAttribute, As(values, "values"),
           numbers.Mostly<std::size_t>({4}, {0, 1, 2, 8, 12, 16}, 20),
           numbers.Mostly<int>({1, 2, 3, 4, 5, 6, 7, 8}, {0, 9, -1}), place, size);
      Note("values: " + Show(values[0]) + " " + Show(values[1]) + " " + Show(values[2]));
    }
  }
}

struct AttributeValue {
  std::uint64_t words[4];
};

std::string ShowAttribute(int attribute, const AttributeValue& value) {
  if (IsUntouched(value)) return "untouched";
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Show(reinterpret_cast<const void*>(value.words[0]));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Show(static_cast<unsigned long long>(value.words[0]));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Format("0x%llx", static_cast<unsigned long long>(value.words[0]));
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return value.words[0] == 0 ? "0" : "set";
    default:
      // Four bytes or one; the pattern behind them shows how many were written.
      return Format("0x%llx", static_cast<unsigned long long>(value.words[0]));
  }
}

int AnyAttribute() {
  return numbers.Mostly<int>(
      {1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21},
      {0, 5, 22, 23, 100, -1}, 8);
}

void AskPointer(int attribute, const Named<CUdeviceptr>& pointer) {
  AttributeValue value;
  FillPattern(&value);
  CALL(cuPointerGetAttribute, As<void*>(&value, "value"), attribute, pointer);
  Note("value: " + ShowAttribute(attribute, value));
}

void AskPointerMore() {
  CUpointer_attribute attributes[6];
  AttributeValue values[6];
  void* data[6];
  std::string text;
  const unsigned count = numbers.Mostly<unsigned>({1, 2, 3, 4, 5, 6}, {0}, 5);
  for (unsigned i = 0; i < 6; ++i) {
    attributes[i] = static_cast<CUpointer_attribute>(AnyAttribute());
    FillPattern(&values[i]);
    data[i] = &values[i];
    if (i < count) text += Format("%d,", attributes[i]);
  }
  CALL(cuPointerGetAttributes, count, As(attributes, "{" + text + "}"), As(data, "data"),
       AnyPointer());
  std::string found = "values:";
  for (unsigned i = 0; i < count; ++i)
    found += Format(" %d=", attributes[i]) + ShowAttribute(attributes[i], values[i]);
  Note(found);
}

void SetPointerAttribute() {
  unsigned value[4] = {numbers.Mostly<unsigned>({0, 1}, {2, UINT32_MAX}), 0, 0, 0};
  const Named<CUdeviceptr> pointer = AnyPointer();
  CALL(cuPointerSetAttribute, As<void*>(value, Format("%u", value[0])),
       numbers.Mostly<int>({6}, {0, 1, 2, 7, 10, 22, -1}, 25), pointer);
  AskPointer(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer);
}

void ExportAddressRange() {
  int file = -1;
  const std::size_t size =
      numbers.Mostly<std::size_t>({64 * kKiB, 2 * kMiB, 4096}, {0, 1, SIZE_MAX});
  CALL(cuMemGetHandleForAddressRange, As<void*>(&file, "file"), AnyPointer(), size,
       numbers.Mostly<int>({1}, {0, 2}), numbers.Mostly<unsigned>({0}, {1, 2}));
  Note(file == -1 ? "file: untouched" : "file: set");
  if (file > 2) close(file);
}

}  // namespace

void Memory() {
  while (NextRound(160)) {
    switch (numbers.Below(5)) {
      case 0:
        AllocateDevice();
        break;
      case 1:
        AllocateHost();
        break;
      case 2:
        Register();
        break;
      default:
        AskMemory();
    }
  }
}

void Managed() {
  while (NextRound(160)) {
    if (numbers.Chance(25)) {
      AllocateManaged();
    } else {
      Advise();
    }
  }
}

void Pointers() {
  CUdeviceptr freed = 0;
  cuMemAlloc(&freed, 64 * kKiB);
  cuMemFree(freed);
  const Named<CUdeviceptr> pointers[] = {
      At(fix.device_memory, 0), At(fix.device_memory, 100), At(fix.second, 0),  At(fix.pinned, 0),
      At(fix.pinned, 4097),     At(fix.registered, 64),     At(fix.managed, 0), At(fix.managed, 9),
      At(fix.pooled, 0),        At(fix.mapped, 4096),       At(fix.host, 0),    {0, "null"},
      {freed, "freed"}};
  for (const Named<CUdeviceptr>& pointer : pointers)
    for (int attribute = 0; attribute <= 22; ++attribute) AskPointer(attribute, pointer);
  while (NextRound(100)) {
    switch (numbers.Below(3)) {
      case 0:
        AskPointer(AnyAttribute(), AnyPointer());
        break;
      case 1:
        AskPointerMore();
        break;
      default:
        SetPointerAttribute();
    }
  }
}

void Sharing() {
  while (NextRound(100)) {
    switch (numbers.Below(3)) {
      case 0: {
        CUipcMemHandle handle;
        FillPattern(&handle);
        CALL(cuIpcGetMemHandle, As(&handle, "handle"), AnyPointer());
        Note(IsUntouched(handle) ? "handle: untouched" : "handle: set");
        break;
      }
      case 1: {
        Out<CUevent> event("event");
        CALL(cuEventCreate, event, numbers.Pick<unsigned>({6, 6, 2, 4, 7, 0}));
        if (event.Or(nullptr) == nullptr) break;
        CUipcEventHandle handle;
        FillPattern(&handle);
        CALL(cuIpcGetEventHandle, As(&handle, "handle"), event.value);
        Note(IsUntouched(handle) ? "handle: untouched" : "handle: set");
        CALL(cuEventDestroy, event.value);
        break;
      }
      default:
        ExportAddressRange();
    }
  }
  // The process that made a handle may not open it.
  CUipcMemHandle handle{};
  Out<CUdeviceptr> opened("opened");
  CALL(cuIpcGetMemHandle, As(&handle, "handle"), At(fix.device_memory, 0));
  for (const unsigned flags : {0u, 1u, 2u}) {
    CALL(cuIpcOpenMemHandle, opened, As(handle, "handle"), flags);
  }
  for (const Named<CUdeviceptr>& pointer :
       {At(fix.device_memory, 0), At(fix.host, 0), As<CUdeviceptr>(0, "null")})
    CALL(cuIpcCloseMemHandle, pointer);
}

}  // namespace sweep
