// Memory pools, memory of graphs, and virtual memory.
#include <unistd.h>

#include "tests/gpu/sweep/sweep.h"

namespace sweep {
namespace {

CUmemPoolProps AnyPool() {
  CUmemPoolProps properties{};
  properties.allocType =
      static_cast<CUmemAllocationType>(numbers.Mostly<int>({1}, {0, 2, 3, -1}, 8));
  properties.handleTypes =
      static_cast<CUmemAllocationHandleType>(numbers.Mostly<int>({0, 1}, {2, 4, 8, 3, -1}, 10));
  properties.location =
      numbers.Chance(85) ? CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, 0} : AnyLocation();
  properties.maxSize = numbers.Mostly<std::size_t>({0, 0, 32 * kMiB, 4 * kMiB}, {1, 100, 4096}, 10);
  properties.usage = static_cast<unsigned short>(numbers.Mostly<int>({0}, {1, 2, 0x8000}, 8));
  return properties;
}

void PoolAttribute(CUmemoryPool pool) {
  const int attribute = numbers.Mostly<int>({1, 2, 3, 4, 5, 6, 7, 8}, {0, 9, 100, -1}, 8);
  std::uint64_t value[2] = {
      numbers.Mostly<std::uint64_t>({0, 1}, {2, 4096, 1ull << 40, UINT64_MAX}, 30), 0};
  if (numbers.Chance(60))
    CALL(cuMemPoolSetAttribute, pool, attribute, As<void*>(value, Show(value[0])));
  std::memset(value, kPattern, sizeof value);
  CALL(cuMemPoolGetAttribute, pool, attribute, As<void*>(value, "value"));
  Note("value: " + Show(static_cast<std::size_t>(value[0])));
}

void PoolAccess(CUmemoryPool pool) {
  CUmemAccessDesc access[2] = {};
  access[0].location =
      numbers.Chance(70) ? CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, 0} : AnyLocation();
  access[0].flags = static_cast<CUmemAccess_flags>(numbers.Mostly<int>({3}, {0, 1, 2, -1}, 35));
  if (numbers.Chance(60))
    CALL(cuMemPoolSetAccess, pool, As(access, "{" + Show(access[0]) + "}"),
         numbers.Mostly<std::size_t>({1}, {0}));
  Out<CUmemAccess_flags> flags("flags");
  CUmemLocation location = numbers.Chance(70) ? access[0].location : AnyLocation();
  CALL(cuMemPoolGetAccess, flags, pool, Ref(location));
}

void PoolMemory(CUmemoryPool pool) {
  Out<CUdeviceptr> memory("memory");
  const CUstream stream = numbers.Mostly<CUstream>({fix.stream}, {nullptr, fix.blocking}, 30);
  const std::size_t size = AnySize(numbers.Pick<std::size_t>({64, 4096, kMiB}));
  CALL(cuMemAllocFromPoolAsync, memory.MaybeNull(), size, pool, stream);
  const CUdeviceptr made = memory.Or(0);
  if (made == 0) return;
  AddRegion({"new", made, kMiB});
  Out<CUdeviceptr> base("base");
  Out<std::size_t> range("size");
  CALL(cuMemGetAddressRange, base, range, As(made, "new"));
  CUmemPoolPtrExportData data;
  FillPattern(&data);
  CALL(cuMemPoolExportPointer, As(&data, "data"), As(made, "new"));
  Note(IsUntouched(data) ? "data: untouched" : "data: set");
  if (numbers.Chance(80)) {
    CALL(cuMemFreeAsync, As(made, "new"), stream);
  } else {
    CALL(cuMemFree, As(made, "new"));
  }
  RemoveRegion("new");
  Settle();
}

void ExportPool(CUmemoryPool pool) {
  int file = -1;
  const int type = numbers.Mostly<int>({1}, {0, 2, 3, -1}, 25);
  CALL(cuMemPoolExportToShareableHandle, As<void*>(&file, "file"), pool, type,
       numbers.Mostly<unsigned>({0}, {1}));
  Note(file == -1 ? "file: untouched" : "file: set");
  if (file > 2) close(file);
}

void UsePool(CUmemoryPool pool) {
  switch (numbers.Below(6)) {
    case 0:
    case 1:
      PoolAttribute(pool);
      break;
    case 2:
      PoolAccess(pool);
      break;
    case 3:
      PoolMemory(pool);
      break;
    case 4:
      CALL(cuMemPoolTrimTo, pool, numbers.Mostly<std::size_t>({0, 4096}, {SIZE_MAX}));
      break;
    default:
      ExportPool(pool);
  }
}

void OnePool() {
  CUmemPoolProps properties = AnyPool();
  Out<CUmemoryPool> pool("pool");
  CALL(cuMemPoolCreate, pool.MaybeNull(), RefOrNull(properties));
  const CUmemoryPool made = pool.Or(nullptr);
  if (made == nullptr) return;
  NameHandle(made, "pool");
  for (int use = 0; use < 4; ++use) UsePool(made);
  if (numbers.Chance(20)) {
    CALL(cuDeviceSetMemPool, AnyDevice(), made);
    Out<CUmemoryPool> current("pool");
    CALL(cuDeviceGetMemPool, current, fix.device);
  }
  CALL(cuMemPoolDestroy, made);
  NameHandle(made, nullptr);
  CUmemoryPool usual = nullptr;
  cuDeviceGetDefaultMemPool(&usual, fix.device);
  cuDeviceSetMemPool(fix.device, usual);
}

void PoolOfLocation() {
  Out<CUmemoryPool> pool("pool");
  CUmemLocation location =
      numbers.Chance(60) ? CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, 0} : AnyLocation();
  const int type = numbers.Mostly<int>({1}, {0, 2, 3, -1}, 25);
  if (numbers.Chance(50)) {
    CALL(cuMemGetDefaultMemPool, pool, Ref(location), type);
  } else {
    CALL(cuMemGetMemPool, pool, Ref(location), type);
  }
}

void AsyncMemory() {
  Out<CUdeviceptr> memory("memory");
  const Named<CUstream> stream = AnyStream();
  CALL(cuMemAllocAsync, memory.MaybeNull(), AnySize(kMiB), stream);
  const CUdeviceptr made = memory.Or(0);
  if (made != 0) CALL(cuMemFreeAsync, As(made, "memory"), stream);
  Settle();
  const Named<CUdeviceptr> wrong = numbers.Pick<Named<CUdeviceptr>>(
      {{0, "null"}, {1, "0x1"}, At(fix.host, 0), At(fix.device_memory, 4), At(fix.pinned, 64)});
  CALL(cuMemFreeAsync, wrong, stream);
  Settle();
}

CUmemAllocationProp AnyPhysical() {
  CUmemAllocationProp properties{};
  properties.type = static_cast<CUmemAllocationType>(numbers.Mostly<int>({1}, {0, 2, -1}, 6));
  properties.requestedHandleTypes =
      static_cast<CUmemAllocationHandleType>(numbers.Mostly<int>({0, 1}, {2, 4, 8, 3, 16}, 8));
  properties.location =
      numbers.Chance(88) ? CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, 0} : AnyLocation();
  properties.allocFlags.compressionType =
      static_cast<unsigned char>(numbers.Mostly<int>({0}, {1, 2}, 6));
  properties.allocFlags.gpuDirectRDMACapable =
      static_cast<unsigned char>(numbers.Mostly<int>({0, 1}, {2}, 4));
  properties.allocFlags.usage = static_cast<unsigned short>(numbers.Mostly<int>({0}, {1, 2, 4}, 5));
  return properties;
}

void AskGranularity() {
  CUmemAllocationProp properties = AnyPhysical();
  Out<std::size_t> granularity("granularity");
  CALL(cuMemGetAllocationGranularity, granularity.MaybeNull(), RefOrNull(properties),
       numbers.Mostly<int>({0, 1}, {2, -1}));
}

void ReserveOnly() {
  Out<CUdeviceptr> address("address");
  const std::size_t size = numbers.Mostly<std::size_t>(
      {2 * kMiB, 4 * kMiB, 64 * kMiB}, {0, 1, 4096, 3 * kMiB, SIZE_MAX, 1ull << 60}, 20);
  CALL(cuMemAddressReserve, address.MaybeNull(), size,
       numbers.Mostly<std::size_t>({0, 2 * kMiB, 4096, 64 * kMiB},
                                   {1, 3, 100, 3 * kMiB, 1ull << 50}, 15),
       As<CUdeviceptr>(0, "null"), numbers.Mostly<unsigned>({0}, {1, 2}));
  const CUdeviceptr made = address.Or(0);
  if (made == 0) return;
  AddRegion({"reserved", made, size});
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  Out<unsigned long long> flags("flags");
  CALL(cuMemGetAccess, flags, Ref(location), As(made, "reserved"));
  int type[4] = {};
  CALL(cuPointerGetAttribute, As<void*>(type, "type"), CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
       As(made, "reserved"));
  CALL(cuMemUnmap, As(made, "reserved"), size);
  if (numbers.Chance(25)) CALL(cuMemAddressFree, As(made, "reserved"), size / 2);
  CALL(cuMemAddressFree, As(made, "reserved"), size);
  CALL(cuMemAddressFree, As(made, "reserved"), size);
  RemoveRegion("reserved");
}

// Two pieces of physical memory of 4 MiB in a range of 16 MiB.
void MapPieces() {
  constexpr std::size_t kPiece = 4 * kMiB, kRange = 16 * kMiB;
  CUmemAllocationProp properties = AnyPhysical();
  Out<CUmemGenericAllocationHandle> handle("handle");
  CALL(cuMemCreate, handle.MaybeNull(),
       numbers.Mostly<std::size_t>({kPiece}, {0, 1, 100, 3 * kMiB, 2 * kMiB, 1ull << 50, SIZE_MAX},
                                   15),
       RefOrNull(properties), numbers.Mostly<unsigned>({0}, {1, 2}, 5));
  const CUmemGenericAllocationHandle made = handle.Or(0);
  if (made == 0) return;
  const auto physical = As(made, "handle");
  Out<CUmemAllocationProp> back("properties");
  CALL(cuMemGetAllocationPropertiesFromHandle, back, physical);
  int file = -1;
  CALL(cuMemExportToShareableHandle, As<void*>(&file, "file"), physical,
       numbers.Mostly<int>({1}, {0, 2, 3}, 20), numbers.Mostly<unsigned>({0}, {1}));
  Note(file == -1 ? "file: untouched" : "file: set");
  if (file > 2) {
    Out<CUmemGenericAllocationHandle> again("handle");
    CALL(cuMemImportFromShareableHandle, again,
         As(reinterpret_cast<void*>(static_cast<std::intptr_t>(file)), "file"),
         numbers.Mostly<int>({1}, {0, 2}));
    if (again.Or(0) != 0) CALL(cuMemRelease, As(again.value, "imported"));
    close(file);
  }
  CUdeviceptr range = 0;
  if (cuMemAddressReserve(&range, kRange, 0, 0, 0) != CUDA_SUCCESS) Note("no addresses");
  const Region reserved{"range", range, kRange};
  AddRegion(reserved);
  const std::int64_t offset =
      numbers.Mostly<std::int64_t>({0, 2 * kMiB, 4 * kMiB}, {1, 4096, 14 * kMiB}, 15);
  const std::size_t size =
      numbers.Mostly<std::size_t>({kPiece}, {0, 2 * kMiB, 4096, 8 * kMiB, 3 * kMiB}, 20);
  CALL(cuMemMap, At(reserved, offset), size,
       numbers.Mostly<std::size_t>({0}, {2 * kMiB, 4096, 1}, 10), physical,
       numbers.Mostly<unsigned>({0}, {1}, 4));
  if (numbers.Chance(20)) CALL(cuMemMap, At(reserved, offset), size, 0, physical, 0);
  CUmemAccessDesc access{};
  access.location =
      numbers.Chance(85) ? CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, 0} : AnyLocation();
  access.flags = static_cast<CUmemAccess_flags>(numbers.Mostly<int>({3, 1, 0}, {2, 4, -1}, 10));
  CALL(cuMemSetAccess, At(reserved, offset),
       numbers.Mostly<std::size_t>({size}, {0, 2 * kMiB, kRange}, 15),
       As(&access, "{" + Show(access) + "}"), numbers.Mostly<std::size_t>({1}, {0}, 5));
  Out<unsigned long long> flags("flags", Shown::kValue);
  CUmemLocation location =
      numbers.Chance(80) ? CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, 0} : AnyLocation();
  CALL(cuMemGetAccess, flags, Ref(location), At(reserved, offset + 64));
  Note(Format("flags: %llu", flags.Or(99)));
  Out<CUdeviceptr> base("base");
  Out<std::size_t> length("size");
  CALL(cuMemGetAddressRange, base, length, At(reserved, offset + 64));
  for (const int attribute : {2, 11, 12, 13, 14, 16, 18, 19}) {
    std::uint64_t value[4];
    std::memset(value, kPattern, sizeof value);
    CALL(cuPointerGetAttribute, As<void*>(value, "value"), attribute, At(reserved, offset + 64));
    Note("value: " + (attribute == 11 || attribute == 19
                          ? Show(static_cast<unsigned long long>(value[0]))
                          : Format("0x%llx", static_cast<unsigned long long>(value[0]))));
  }
  Out<CUmemGenericAllocationHandle> retained("handle");
  CALL(cuMemRetainAllocationHandle, retained,
       As(reinterpret_cast<void*>(range + static_cast<std::uint64_t>(offset)), "range+offset"));
  if (retained.Or(0) != 0) {
    Note(retained.value == made ? "the same handle" : "another handle");
    CALL(cuMemRelease, As(retained.value, "retained"));
  }
  CALL(cuMemFree, At(reserved, offset));
  if (numbers.Chance(40)) CALL(cuMemRelease, physical);
  if (numbers.Chance(30)) CALL(cuMemUnmap, At(reserved, offset), 2 * kMiB);
  if (numbers.Chance(20)) CALL(cuMemAddressFree, At(reserved, 0), kRange);
  CALL(cuMemUnmap, At(reserved, offset), size);
  // Whatever is left.
  cuMemUnmap(range, kRange);
  cuMemAddressFree(range, kRange);
  RemoveRegion("range");
}

void AskGraphMemory() {
  std::uint64_t value[2];
  const int attribute = numbers.Mostly<int>({0, 1, 2, 3}, {4, 100, -1});
  std::memset(value, kPattern, sizeof value);
  CALL(cuDeviceGetGraphMemAttribute, AnyDevice(), attribute, As<void*>(value, "value"));
  Note("value: " + Show(static_cast<std::size_t>(value[0])));
  if (numbers.Chance(40)) {
    value[0] = numbers.Mostly<std::uint64_t>({0}, {1, 4096}, 30);
    CALL(cuDeviceSetGraphMemAttribute, AnyDevice(), attribute, As<void*>(value, Show(value[0])));
  }
  if (numbers.Chance(15)) CALL(cuDeviceGraphMemTrim, AnyDevice());
}

// A node that allocates and, mostly, one that frees.
void GraphWithMemory() {
  CUgraph graph = nullptr;
  cuGraphCreate(&graph, 0);
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
  allocation.poolProps = AnyPool();
  allocation.poolProps.maxSize = numbers.Mostly<std::size_t>({0}, {100}, 4);
  allocation.accessDescs = numbers.Chance(20) ? &access : nullptr;
  allocation.accessDescCount = allocation.accessDescs == nullptr ? 0 : 1;
  allocation.bytesize =
      numbers.Mostly<std::size_t>({64, 4096, kMiB}, {0, 1ull << 50, SIZE_MAX}, 12);
  Out<CUgraphNode> node("node"), free_node("node"), second("node");
  CALL(cuGraphAddMemAllocNode, node, graph, nullptr, 0, Ref(allocation));
  Note("memory: " + Show(allocation.dptr));
  const CUgraphNode made = node.Or(nullptr);
  if (made != nullptr) {
    Out<CUDA_MEM_ALLOC_NODE_PARAMS> back("parameters");
    CALL(cuGraphMemAllocNodeGetParams, made, back);
    const bool wrong = numbers.Chance(10);
    CUgraphNode before[1] = {made};
    const auto memory = wrong ? At(fix.device_memory, 0) : As(allocation.dptr, "memory");
    CALL(cuGraphAddMemFreeNode, free_node, graph, As(before, "{node}"),
         numbers.Mostly<std::size_t>({1}, {0}, 10), memory);
    if (free_node.Or(nullptr) != nullptr) {
      Out<CUdeviceptr> freed("memory");
      CALL(cuGraphMemFreeNodeGetParams, free_node.value, freed);
      if (numbers.Chance(20))
        CALL(cuGraphAddMemFreeNode, second, graph, As(before, "{node}"), 1, memory);
    }
    Out<CUgraph> clone("clone");
    if (numbers.Chance(15)) CALL(cuGraphClone, clone, graph);
    if (clone.Or(nullptr) != nullptr) cuGraphDestroy(clone.value);
    if (numbers.Chance(10)) CALL(cuGraphDestroyNode, made);
    Out<CUgraphExec> exec("exec"), twice("exec");
    CALL(cuGraphInstantiate, exec, graph, numbers.Mostly<unsigned>({0, 1}, {2, 4}, 8));
    if (exec.Or(nullptr) != nullptr) {
      if (numbers.Chance(20)) CALL(cuGraphInstantiate, twice, graph, 0);
      if (twice.Or(nullptr) != nullptr) cuGraphExecDestroy(twice.value);
      if (free_node.Or(nullptr) != nullptr && !wrong) {
        CALL(cuGraphLaunch, exec.value, As(fix.stream, "stream"));
        CALL(cuGraphLaunch, exec.value, As(fix.stream, "stream"));
      }
      Settle();
      CALL(cuGraphExecDestroy, exec.value);
    }
  }
  CALL(cuGraphDestroy, graph);
}

}  // namespace

void Pools() {
  while (NextRound(100)) {
    switch (numbers.Below(4)) {
      case 0:
        PoolOfLocation();
        break;
      case 1:
        AsyncMemory();
        break;
      default:
        OnePool();
    }
  }
}

void GraphMemory() {
  while (NextRound(80)) {
    if (numbers.Chance(50)) {
      AskGraphMemory();
    } else {
      GraphWithMemory();
    }
  }
}

void VirtualMemory() {
  while (NextRound(60)) {
    switch (numbers.Below(4)) {
      case 0:
        AskGranularity();
        break;
      case 1:
        ReserveOnly();
        break;
      default:
        MapPieces();
    }
  }
}

}  // namespace sweep
