// Functions, launches, occupancy, libraries and linking.
#include "tests/gpu/sweep/sweep.h"

namespace sweep {
namespace {

int AnyFunctionAttribute() {
  return numbers.Mostly<int>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                             {16, 17, 20, 100, -1}, 8);
}

int AnyAttributeValue() {
  return numbers.Mostly<int>(
      {0, 1, 2, 4, 8, 16, 50, 100, 1024, 32768, 49152},
      {-1, -2, 3, 101, 49153, 101376, 166912, 232448, 232449, INT32_MAX, INT32_MIN}, 30);
}

void AskFunction() {
  const Named<CUfunction> function = AnyFunction();
  switch (numbers.Below(9)) {
    case 0:
    case 1:
    case 2: {
      const int attribute =
          numbers.Mostly<int>({8, 9, 10, 11, 12, 13, 14, 15}, {0, 1, 4, 16, -1}, 20);
      CALL(cuFuncSetAttribute, function, attribute, AnyAttributeValue());
      Out<int> value("value");
      CALL(cuFuncGetAttribute, value, attribute, function);
      break;
    }
    case 3:
      CALL(cuFuncSetCacheConfig, function, numbers.Mostly<int>({0, 1, 2, 3}, {4, -1}));
      break;
    case 4:
      CALL(cuFuncSetSharedMemConfig, function, numbers.Mostly<int>({0, 1, 2}, {3, -1}));
      break;
    case 5: {
      Out<std::size_t> offset("offset"), size("size");
      CALL(cuFuncGetParamInfo, function,
           numbers.Mostly<std::size_t>({0, 1, 2, 3, 4}, {5, 100, SIZE_MAX}), offset,
           size.MaybeNull());
      break;
    }
    case 6: {
      Out<const char*> name("name");
      Out<CUmodule> module("module");
      CALL(cuFuncGetName, name, function);
      CALL(cuFuncGetModule, module.MaybeNull(), function);
      break;
    }
    case 7: {
      Out<CUfunctionLoadingState> state("state");
      CALL(cuFuncIsLoaded, state.MaybeNull(), function);
      CALL(cuFuncLoad, function);
      break;
    }
    default: {
      Out<int> value("value");
      CALL(cuFuncGetAttribute, value.MaybeNull(), AnyFunctionAttribute(), function);
    }
  }
}

// Sets back what a round has changed, so that no later round depends on it.
void ResetFunctions() {
  for (const CUfunction function : {fix.nothing, fix.store, fix.many, fix.with_shared}) {
    if (function == nullptr) continue;
    cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 44 * 1024);
    cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -1);
    cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0);
    for (const CUfunction_attribute attribute :
         {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
          CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
          CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE})
      cuFuncSetAttribute(function, attribute, 0);
    cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_NONE);
  }
}

// Grids and blocks that end soon or cannot begin.
struct Shape {
  unsigned grid[3], block[3], shared;
};

Shape AnyShape() {
  Shape shape{};
  shape.grid[0] = numbers.Mostly<unsigned>({1, 2, 7, 64, 4096}, {0, 1u << 31, UINT32_MAX}, 8);
  shape.grid[1] = numbers.Mostly<unsigned>({1, 1, 2, 3}, {0, 65536, 1u << 31}, 6);
  shape.grid[2] = numbers.Mostly<unsigned>({1, 1, 2}, {0, 65536}, 6);
  shape.block[0] =
      numbers.Mostly<unsigned>({1, 31, 32, 128, 256, 512}, {0, 257, 1024, 1025, UINT32_MAX}, 12);
  shape.block[1] = numbers.Mostly<unsigned>({1, 1, 2}, {0, 4, 1024, 1025}, 8);
  shape.block[2] = numbers.Mostly<unsigned>({1, 1, 2}, {0, 64, 65}, 8);
  shape.shared = numbers.Mostly<unsigned>(
      {0, 0, 16, 4096, 45056}, {45057, 49152, 49153, 232448, 232449, 1u << 30, UINT32_MAX}, 12);
  return shape;
}

struct Parameters {
  CUdeviceptr out = fix.second.base;
  unsigned value = 77;
  unsigned char bytes[24] = {};
  void* store[2] = {&out, &value};
  void* many[5] = {bytes, bytes, bytes, &out, &value};

  void** Of(CUfunction function) {
    return function == fix.many ? many : function == fix.nothing ? nullptr : store;
  }
};

void Launch() {
  const Named<CUfunction> function = AnyFunction();
  const Shape shape = AnyShape();
  Parameters parameters;
  const auto list = As(parameters.Of(function.value), "params");
  const auto stream = AnyStream();
  if (numbers.Chance(20)) {
    CALL(cuLaunchCooperativeKernel, function, shape.grid[0], shape.grid[1], shape.grid[2],
         shape.block[0], shape.block[1], shape.block[2], shape.shared, stream, list);
  } else if (numbers.Chance(20)) {
    unsigned char buffer[64] = {};
    // A kernel that uses no parameter: the buffer may be too small.
    std::size_t size = numbers.Mostly<std::size_t>({44, 48}, {0, 8, 64});
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    CALL(cuLaunchKernel, As(fix.many, "many"), shape.grid[0], shape.grid[1], shape.grid[2],
         shape.block[0], shape.block[1], shape.block[2], shape.shared, stream,
         numbers.Chance(10) ? list : As<void**>(nullptr, "null"),
         As(extra, Format("{buffer of %zu}", size)));
  } else {
    CALL(cuLaunchKernel, function, shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0],
         shape.block[1], shape.block[2], shape.shared, stream, list, nullptr);
  }
  Settle();
}

std::string FillAttribute(CUlaunchAttribute* attribute) {
  const int id = numbers.Mostly<int>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14},
                                     {13, 15, 16, 17, 100, -1}, 8);
  attribute->id = static_cast<CUlaunchAttributeID>(id);
  CUlaunchAttributeValue& value = attribute->value;
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      value.accessPolicyWindow = {
          reinterpret_cast<void*>(fix.device_memory.base),
          numbers.Mostly<std::size_t>({4096}, {0, 1ull << 40}),
          numbers.Mostly<float>({0.5f, 1}, {2, -1}),
          static_cast<CUaccessProperty>(numbers.Mostly<int>({0, 1, 2}, {3})),
          static_cast<CUaccessProperty>(numbers.Mostly<int>({0, 1}, {2}))};
      return Format("%d:%zu/%g/%d/%d", id, value.accessPolicyWindow.num_bytes,
                    value.accessPolicyWindow.hitRatio, value.accessPolicyWindow.hitProp,
                    value.accessPolicyWindow.missProp);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      value.clusterDim = {numbers.Mostly<unsigned>({1, 2, 4, 8}, {0, 3, 16, 17, UINT32_MAX}),
                          numbers.Mostly<unsigned>({1, 1, 2}, {0, 3}),
                          numbers.Mostly<unsigned>({1}, {0, 2})};
      return Format("%d:%ux%ux%u", id, value.clusterDim.x, value.clusterDim.y, value.clusterDim.z);
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT: {
      const bool timed = numbers.Chance(20);
      const int flags = numbers.Mostly<int>({0}, {1, 2});
      if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
        value.programmaticEvent = {timed ? fix.event : fix.untimed, flags,
                                   numbers.Mostly<int>({0, 1}, {2})};
      } else {
        value.launchCompletionEvent = {timed ? fix.event : fix.untimed, flags};
      }
      return Format("%d:%s/%d", id, timed ? "event" : "untimed", flags);
    }
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      value.memSyncDomainMap = {
          static_cast<unsigned char>(numbers.Mostly<int>({0, 1}, {3, 4, 255})),
          static_cast<unsigned char>(numbers.Mostly<int>({0, 1}, {3, 4, 255}))};
      return Format("%d:%d,%d", id, value.memSyncDomainMap.default_, value.memSyncDomainMap.remote);
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      value.deviceUpdatableKernelNode.deviceUpdatable = numbers.Mostly<int>({0, 1}, {2});
      return Format("%d:%d", id, value.deviceUpdatableKernelNode.deviceUpdatable);
    default:
      value.priority = numbers.Mostly<int>({0, 1, 2}, {-1, -5, 3, 50, 100, 101, INT32_MAX}, 25);
      return Format("%d:%d", id, value.priority);
  }
}

struct Config {
  CUlaunchConfig config{};
  CUlaunchAttribute attributes[3] = {};
  std::string text;
};

void FillConfig(Config* made, bool calm) {
  const Shape shape = AnyShape();
  CUlaunchConfig& config = made->config;
  config.gridDimX = calm ? numbers.Pick<unsigned>({2, 8, 16}) : shape.grid[0];
  config.gridDimY = calm ? numbers.Pick<unsigned>({1, 2}) : shape.grid[1];
  config.gridDimZ = calm ? 1 : shape.grid[2];
  config.blockDimX = calm ? numbers.Pick<unsigned>({32, 64, 256}) : shape.block[0];
  config.blockDimY = calm ? 1 : shape.block[1];
  config.blockDimZ = calm ? 1 : shape.block[2];
  config.sharedMemBytes = calm ? 0 : shape.shared;
  config.numAttrs = numbers.Pick<unsigned>({0, 1, 1, 1, 2, 3});
  config.attrs = numbers.Chance(4) && config.numAttrs == 0 ? nullptr : made->attributes;
  for (CUlaunchAttribute& attribute : made->attributes) {
    const std::string text = FillAttribute(&attribute);
    if (&attribute < made->attributes + config.numAttrs) made->text += text + " ";
  }
  const Named<CUstream> stream = AnyStream();
  config.hStream = stream.value;
  made->text =
      Format("%u,%u,%u %u,%u,%u shared=%u ", config.gridDimX, config.gridDimY, config.gridDimZ,
             config.blockDimX, config.blockDimY, config.blockDimZ, config.sharedMemBytes) +
      stream.text + " " + made->text;
}

void LaunchEx() {
  Config made;
  FillConfig(&made, numbers.Chance(75));
  const Named<CUfunction> function = AnyFunction();
  Parameters parameters;
  CALL(cuLaunchKernelEx, As(&made.config, "{" + made.text + "}"), function,
       As(parameters.Of(function.value), "params"), nullptr);
  Settle();
}

void OldLaunch() {
  // Kernels that use no parameter, because the parameters of a round are not complete.
  const Named<CUfunction> function = numbers.Pick<Named<CUfunction>>(
      {{fix.nothing, "nothing"}, {fix.many, "many"}, {fix.many, "many"}});
  CALL(cuFuncSetBlockShape, function, numbers.Mostly<int>({1, 32, 64}, {0, -1, 1025, 2048}),
       numbers.Mostly<int>({1, 2}, {0, -1}), numbers.Mostly<int>({1}, {0, 65}));
  CALL(cuFuncSetSharedSize, function, numbers.Mostly<unsigned>({0, 64}, {49153, UINT32_MAX}));
  CALL(cuParamSetSize, function,
       numbers.Mostly<unsigned>({44, 48}, {0, 4, 4096, 4097, UINT32_MAX}));
  CUdeviceptr out = fix.second.base;
  CALL(cuParamSetv, function, numbers.Mostly<int>({0}, {4, 8}, 0), As<void*>(&out, "second"), 8);
  CALL(cuParamSeti, function, numbers.Mostly<int>({8, 12}, {4096, -1}), 5);
  CALL(cuParamSetf, function, numbers.Mostly<int>({8, 12}, {4096, -4}), 1.5f);
  switch (numbers.Below(3)) {
    case 0:
      CALL(cuLaunch, function);
      break;
    case 1:
      CALL(cuLaunchGrid, function, numbers.Mostly<int>({1, 4}, {0, -1}),
           numbers.Mostly<int>({1, 2}, {0, 65536}));
      break;
    default:
      CALL(cuLaunchGridAsync, function, numbers.Mostly<int>({1, 4}, {0, -1}),
           numbers.Mostly<int>({1, 2}, {0, 65536}), AnyStream());
  }
  Settle();
}

std::size_t CUDA_CB SharedOfBlock(int threads) { return static_cast<std::size_t>(threads) * 16; }

void AskOccupancy() {
  const Named<CUfunction> function = AnyFunction();
  Out<int> blocks("blocks"), size("size");
  const int threads = numbers.Mostly<int>({32, 64, 96, 256, 512, 1, 33},
                                          {0, -1, 257, 1024, 1025, INT32_MAX, INT32_MIN}, 20);
  const std::size_t shared =
      numbers.Mostly<std::size_t>({0, 16, 1024, 4096, 16384, 45056},
                                  {45057, 49152, 49153, 232448, 232449, 1ull << 32, SIZE_MAX}, 18);
  const unsigned flags = numbers.Mostly<unsigned>({0, 1}, {2, 3, UINT32_MAX});
  switch (numbers.Below(8)) {
    case 0:
      CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, blocks.MaybeNull(), function, threads,
           shared);
      break;
    case 1:
      CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, blocks.MaybeNull(), function,
           threads, shared, flags);
      break;
    case 2:
    case 3: {
      Out<int> grid("grid");
      const auto callback = numbers.Chance(40) ? As<CUoccupancyB2DSize>(&SharedOfBlock, "callback")
                                               : As<CUoccupancyB2DSize>(nullptr, "null");
      const int limit = numbers.Mostly<int>({0, 32, 100, 1024}, {-1, 1, 1025, INT32_MAX});
      if (numbers.Chance(50)) {
        CALL(cuOccupancyMaxPotentialBlockSize, grid, size, function, callback, shared, limit);
      } else {
        CALL(cuOccupancyMaxPotentialBlockSizeWithFlags, grid, size, function, callback, shared,
             limit, flags);
      }
      break;
    }
    case 4: {
      Out<std::size_t> available("available");
      CALL(cuOccupancyAvailableDynamicSMemPerBlock, available.MaybeNull(), function,
           numbers.Mostly<int>({1, 2, 4, 16}, {0, -1, 32, 33, INT32_MAX}), threads);
      break;
    }
    default: {
      Config made;
      FillConfig(&made, numbers.Chance(60));
      if (numbers.Chance(50)) {
        CALL(cuOccupancyMaxActiveClusters, blocks.MaybeNull(), function,
             As(&made.config, "{" + made.text + "}"));
      } else {
        CALL(cuOccupancyMaxPotentialClusterSize, size.MaybeNull(), function,
             As(&made.config, "{" + made.text + "}"));
      }
    }
  }
}

const char* AnyName() {
  return numbers.Mostly<const char*>({"nothing", "store", "many", "with_shared"},
                                     {"", "Nothing", "nothing ", "counter", "table"}, 25);
}

const char* AnyGlobal() {
  return numbers.Mostly<const char*>({"counter", "table", "constant"}, {"", "nothing", "none"}, 25);
}

// Options of the compiler and their values, in the arrays that the driver wants.
struct Options {
  CUjit_option names[4];
  void* values[4];
  char info[512] = {}, error[512] = {};
  unsigned count;
  std::string text;
};

void FillOptions(Options* made) {
  made->count = numbers.Mostly<unsigned>({0, 0, 1, 2}, {3}, 10);
  for (unsigned i = 0; i < 4; ++i) {
    int name =
        numbers.Mostly<int>({0, 1, 7, 8, 11, 12, 13, 14, 10}, {9, 15, 16, 30, 31, 32, 33}, 15);
    std::uint64_t value = 0;
    switch (name) {
      case CU_JIT_MAX_REGISTERS:
        value = numbers.Mostly<std::uint64_t>({16, 32, 64}, {0, 1, 1000});
        break;
      case CU_JIT_OPTIMIZATION_LEVEL:
        value = numbers.Mostly<std::uint64_t>({0, 4}, {5, 100});
        break;
      case CU_JIT_TARGET:
        value = numbers.Mostly<std::uint64_t>({75, 80, 90}, {0, 20, 300});
        break;
      case CU_JIT_THREADS_PER_BLOCK:
        value = numbers.Mostly<std::uint64_t>({32, 256}, {0, 5000});
        break;
      default:
        value = numbers.Mostly<std::uint64_t>({0, 1}, {2, 3, 100}, 10);
    }
    made->names[i] = static_cast<CUjit_option>(name);
    made->values[i] = reinterpret_cast<void*>(value);
    if (i < made->count)
      made->text += Format("%d:%llu ", name, static_cast<unsigned long long>(value));
  }
}

const char kBrokenPtx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry x() { bad; }\n";
const char kNewPtx[] =
    ".version 99.0\n.target sm_75\n.address_size 64\n.visible .entry x() { ret; }\n";
const char kEmptyPtx[] = ".version 7.0\n.target sm_75\n.address_size 64\n";

Named<const void*> AnyImage() {
  switch (numbers.Below(12)) {
    case 0:
      return As<const void*>(kBrokenPtx, "broken");
    case 1:
      return As<const void*>(kNewPtx, "too new");
    case 2:
      return As<const void*>(kEmptyPtx, "empty");
    case 3:
      return As<const void*>("not a program", "text");
    case 4:
      return As<const void*>("", "nothing");
    case 5:
      return As<const void*>(nullptr, "null");
    default:
      return As<const void*>(kPtx, "ptx");
  }
}

void OneModule() {
  Out<CUmodule> module("module");
  Options options;
  FillOptions(&options);
  if (numbers.Chance(50)) {
    CALL(cuModuleLoadData, module, AnyImage());
  } else {
    CALL(cuModuleLoadDataEx, module, AnyImage(), options.count,
         As(options.names, "{" + options.text + "}"), As(options.values, "values"));
  }
  const CUmodule made = module.Or(nullptr);
  if (made == nullptr) return;
  NameHandle(made, "made");
  Out<unsigned> count("count");
  CALL(cuModuleGetFunctionCount, count.MaybeNull(), made);
  Out<CUfunction> function("function");
  CALL(cuModuleGetFunction, function.MaybeNull(), made, AnyName());
  Out<CUdeviceptr> memory("memory");
  Out<std::size_t> size("size");
  CALL(cuModuleGetGlobal, memory.MaybeNull(), size.MaybeNull(), made, AnyGlobal());
  if (memory.Or(0) != 0) {
    AddRegion({"global", memory.value, 8});
    Out<CUdeviceptr> base("base");
    Out<std::size_t> range("size");
    CALL(cuMemGetAddressRange, base, range, As(memory.value, "global"));
    int type[4] = {};
    CALL(cuPointerGetAttribute, As<void*>(type, "type"), CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
         As(memory.value, "global"));
    CALL(cuMemsetD8, As(memory.value, "global"), 1, 4);
    CALL(cuMemFree, As(memory.value, "global"));
    RemoveRegion("global");
  }
  CUfunction functions[8];
  const unsigned wanted = numbers.Pick<unsigned>({0, 1, 4, 8});
  CALL(cuModuleEnumerateFunctions, As(functions, "functions"), wanted, made);
  Out<CUtexref> texture("reference");
  CALL(cuModuleGetTexRef, texture, made, "nothing");
  if (function.Or(nullptr) != nullptr) {
    Out<int> value("value");
    CALL(cuFuncGetAttribute, value, AnyFunctionAttribute(), As(function.value, "function"));
  }
  CALL(cuModuleUnload, made);
  NameHandle(made, nullptr);
}

void OneLibrary() {
  Out<CUlibrary> library("library");
  Options options;
  FillOptions(&options);
  CUlibraryOption names[2] = {static_cast<CUlibraryOption>(numbers.Mostly<int>({1}, {2, -1}, 20)),
                              CU_LIBRARY_BINARY_IS_PRESERVED};
  void* values[2] = {reinterpret_cast<void*>(numbers.Pick<std::uint64_t>({0, 1})), nullptr};
  CALL(cuLibraryLoadData, library, AnyImage(), As(options.names, "{" + options.text + "}"),
       As(options.values, "values"), options.count, As(names, Format("{%d}", names[0])),
       As(values, "values"), numbers.Mostly<unsigned>({0}, {1}, 30));
  const CUlibrary made = library.Or(nullptr);
  if (made == nullptr) return;
  NameHandle(made, "made");
  Out<unsigned> count("count");
  Out<CUkernel> kernel("kernel");
  Out<CUmodule> module("module");
  Out<CUdeviceptr> memory("memory");
  Out<std::size_t> size("size");
  CALL(cuLibraryGetKernelCount, count, made);
  CALL(cuLibraryGetKernel, kernel, made, AnyName());
  CALL(cuLibraryGetModule, module, made);
  CALL(cuLibraryGetGlobal, memory.MaybeNull(), size.MaybeNull(), made, AnyGlobal());
  CALL(cuLibraryGetManaged, memory, size, made, AnyGlobal());
  Out<void*> unified("function");
  CALL(cuLibraryGetUnifiedFunction, unified, made, AnyName());
  if (kernel.Or(nullptr) != nullptr) {
    const CUkernel one = kernel.value;
    NameHandle(one, "kernel");
    Out<CUfunction> function("function");
    Out<CUlibrary> of("library");
    Out<const char*> name("name");
    Out<int> value("value");
    Out<std::size_t> offset("offset");
    CALL(cuKernelGetFunction, function, one);
    CALL(cuKernelGetLibrary, of, one);
    CALL(cuKernelGetName, name, one);
    CALL(cuKernelGetParamInfo, one, numbers.Mostly<std::size_t>({0, 1, 4}, {5, SIZE_MAX}), offset,
         size.MaybeNull());
    const int attribute = AnyFunctionAttribute();
    CALL(cuKernelSetAttribute, attribute, AnyAttributeValue(), one, AnyDevice());
    CALL(cuKernelGetAttribute, value, attribute, one, AnyDevice());
    CALL(cuKernelSetCacheConfig, one, numbers.Mostly<int>({0, 1, 2, 3}, {4, -1}), AnyDevice());
    CALL(cuFuncGetAttribute, value, AnyFunctionAttribute(), one);
    NameHandle(one, nullptr);
  }
  CALL(cuLibraryUnload, made);
  NameHandle(made, nullptr);
}

void LoadFile() {
  Out<CUmodule> module("module");
  Out<CUlibrary> library("library");
  const char* const path =
      numbers.Pick<const char*>({"/nonexistent/x.cubin", "", "/dev/null", "/"});
  if (numbers.Chance(50)) {
    CALL(cuModuleLoad, module, path);
  } else {
    CALL(cuLibraryLoadFromFile, library, path, nullptr, nullptr, 0, nullptr, nullptr, 0);
  }
}

void OneLink() {
  Options options;
  FillOptions(&options);
  Out<CUlinkState> state("state");
  CALL(cuLinkCreate, options.count, As(options.names, "{" + options.text + "}"),
       As(options.values, "values"), state);
  const CUlinkState made = state.Or(nullptr);
  if (made == nullptr) return;
  for (std::uint64_t inputs = numbers.Below(3); inputs > 0; --inputs) {
    const Named<const char*> image = numbers.Mostly<Named<const char*>>(
        {{kPtx, "ptx"}}, {{kBrokenPtx, "broken"}, {kEmptyPtx, "empty"}, {"text", "text"}}, 25);
    // The size of PTX includes the zero at its end.
    const std::size_t size = std::strlen(image.value) + numbers.Mostly<std::size_t>({1}, {0});
    CALL(cuLinkAddData, made, numbers.Mostly<int>({CU_JIT_INPUT_PTX}, {0, 2, 3, 7, -1}), image,
         size, numbers.Pick<const char*>({"name", nullptr}), 0, nullptr, nullptr);
  }
  if (numbers.Chance(20))
    CALL(cuLinkAddFile, made, CU_JIT_INPUT_PTX, "/nonexistent/x.ptx", 0, nullptr, nullptr);
  Out<void*> image("image");
  Out<std::size_t> size("size", Shown::kHidden);
  const CUresult completed = CALL(cuLinkComplete, made, image, size.MaybeNull());
  if (completed == CUDA_SUCCESS) {
    Out<CUmodule> module("module");
    CALL(cuModuleLoadData, module, As<const void*>(image.value, "image"));
    if (module.Or(nullptr) != nullptr) {
      Out<unsigned> count("count");
      CALL(cuModuleGetFunctionCount, count, module.value);
      CALL(cuModuleUnload, module.value);
    }
  }
  CALL(cuLinkDestroy, made);
}

}  // namespace

void Functions() {
  for (const CUfunction function : {fix.nothing, fix.store, fix.many, fix.with_shared})
    for (int attribute = 0; attribute <= 20; ++attribute) {
      Out<int> value("value");
      CALL(cuFuncGetAttribute, value, attribute, function);
    }
  while (NextRound(200)) {
    AskFunction();
    ResetFunctions();
  }
}

void Launches() {
  ResetFunctions();
  while (NextRound(250)) {
    Launch();
  }
}

void LaunchAttributes() {
  ResetFunctions();
  while (NextRound(250)) {
    LaunchEx();
  }
}

void OldLaunches() {
  while (NextRound(40)) {
    OldLaunch();
  }
}

void Occupancy() {
  ResetFunctions();
  while (NextRound(300)) {
    AskOccupancy();
  }
}

void Libraries() {
  while (NextRound(50)) {
    switch (numbers.Below(5)) {
      case 0:
        LoadFile();
        break;
      case 1:
      case 2:
        OneModule();
        break;
      default:
        OneLibrary();
    }
  }
}

void Linking() {
  while (NextRound(40)) {
    OneLink();
  }
}

}  // namespace sweep
