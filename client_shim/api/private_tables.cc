// cuGetExportTable: tables of functions without names, with which CUDA's runtime and libraries talk
// to the driver. The tables' ids, lengths and required entries were measured, or the ZLUDA project
// describes them. An entry that was never seen to be called returns CUDA_ERROR_NOT_SUPPORTED and
// logs its name.
//
// A table begins with its size in bytes, except the table of context-local storage.
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "client_shim/base/gate.h"
#include "client_shim/base/log.h"
#include "client_shim/base/version.h"
#include "client_shim/code/compile_cache.h"
#include "client_shim/code/libraries.h"
#include "client_shim/code/nvrtc_code.h"
#include "client_shim/entry/driver_tools.h"
#include "client_shim/entry/handshake.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

CUresult Gate() { return g_gate.load(std::memory_order_acquire); }

// ---- the tables' names and lengths, in entries

enum TableName {
  kRuntimeInterface,
  kToolCallbacks,
  kLocalStorage,
  kContextChecks,
  kHandshake,
  kThreadState,
  kLogSink,
  kIdentity,
  kTopology,
  kCompileCache,
  kModuleTools,
};
constexpr const char* kTableNames[] = {
    "runtime interface", "tool callbacks", "context-local storage",
    "context checks",    "handshake",      "thread state",
    "log sink",          "identity",       "SM topology",
    "compile cache",     "module tools",
};

// One function for each table and index, so that the log can name the entry that was called.
template <TableName table, size_t index>
CUresult Unfilled() {
  static std::atomic<bool> named{false};
  if (!named.exchange(true, std::memory_order_relaxed)) {
    Log(LogLevel::kWarning, "entry %zu of the %s table of cuGetExportTable is not supported", index,
        kTableNames[table]);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

template <size_t entries>
using Table = std::array<const void*, entries>;

template <TableName table, size_t entries>
Table<entries> UnfilledTable() {
  return [&]<size_t... index>(std::index_sequence<index...>) {
    Table<entries> all{reinterpret_cast<const void*>(&Unfilled<table, index>)...};
    all[0] = reinterpret_cast<const void*>(entries * sizeof(void*));
    return all;
  }
  (std::make_index_sequence<entries>());
}

template <typename Function>
const void* Entry(Function* function) {
  return reinterpret_cast<const void*>(function);
}

// ---- runtime interface

CUresult GetPrimaryContext(CUcontext* context, CUdevice device) {
  if (const CUresult gate = Gate(); gate != CUDA_SUCCESS) return gate;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!session().HasDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = HandleOf(PrimaryContext(static_cast<uint16_t>(device)));
  return CUDA_SUCCESS;
}

// The runtime of CUDA 11 loads its modules with this function; later ones call cuLibraryLoadData. The
// symbols are host variables to which the module refers (__cudaRegisterHostVar).
CUresult LoadRuntimeModule(CUmodule* module, const void* wrapper, const char** symbol_names,
                           void** symbol_addresses, uint32_t symbols) {
  if (const CUresult gate = Gate(); gate != CUDA_SUCCESS) return gate;
  if (module == nullptr || wrapper == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (symbols != 0) {
    Log(LogLevel::kWarning, "a module refers to %u host variables, which is not supported",
        symbols);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return api::cuModuleLoadDataEx(module, wrapper, 0, nullptr, nullptr);
}

// The program ends the use of that image. The shim keeps nothing that lies in it.
CUresult ForgetRuntimeImage(const void*) { return CUDA_SUCCESS; }

const Table<13>& RuntimeInterface() {
  static const Table<13> table = [] {
    auto made = UnfilledTable<kRuntimeInterface, 13>();
    made[2] = Entry(&GetPrimaryContext);
    made[6] = Entry(&LoadRuntimeModule);
    made[7] = Entry(&ForgetRuntimeImage);
    return made;
  }();
  return table;
}

// ---- tool callbacks: buffers that a profiler would fill

CUresult GetFirstToolBuffer(void** buffer, size_t* count) {
  static uint64_t zeros[1024];
  if (buffer == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *buffer = zeros;
  *count = 1024;
  return CUDA_SUCCESS;
}

CUresult GetSecondToolBuffer(void** buffer, size_t* count) {
  static uint64_t zeros[14];
  if (buffer == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *buffer = zeros;
  *count = 14;
  return CUDA_SUCCESS;
}

const Table<7>& ToolCallbacks() {
  static const Table<7> table = [] {
    auto made = UnfilledTable<kToolCallbacks, 7>();
    made[2] = Entry(&GetFirstToolBuffer);
    made[6] = Entry(&GetSecondToolBuffer);
    return made;
  }();
  return table;
}

// ---- context-local storage

// `handle` null: the current context.
CUresult StorageOf(CUcontext handle, Context** context) {
  if (const CUresult gate = Gate(); gate != CUDA_SUCCESS) [[unlikely]]
    return gate;
  if (handle == nullptr || handle == thread_state.current) [[likely]] {
    return CurrentContext(context) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  }
  *context = FindContext(handle);
  return *context != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult StoragePut(CUcontext handle, void* key, void* value, LocalStorage::Destructor destructor) {
  Context* context;
  if (const CUresult result = StorageOf(handle, &context); result != CUDA_SUCCESS) return result;
  return context->storage.Put(key, value, destructor);
}

CUresult StorageDelete(CUcontext handle, void* key) {
  Context* context;
  if (const CUresult result = StorageOf(handle, &context); result != CUDA_SUCCESS) return result;
  return context->storage.Delete(key);
}

CUresult StorageGet(void** value, CUcontext handle, void* key) {
  Context* context;
  if (const CUresult result = StorageOf(handle, &context); result != CUDA_SUCCESS) [[unlikely]]
    return result;
  if (value == nullptr) [[unlikely]]
    return CUDA_ERROR_INVALID_VALUE;
  return context->storage.Get(key, value);
}

const Table<3>& LocalStorageTable() {
  static const Table<3> table = {Entry(&StoragePut), Entry(&StorageDelete), Entry(&StorageGet)};
  return table;
}

// ---- context checks

CUresult CheckContext(CUcontext, uint32_t* result, void**) {
  if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *result = 0;
  return CUDA_SUCCESS;
}

CUresult CheckMore() { return CUDA_SUCCESS; }

const Table<15>& ContextChecks() {
  static const Table<15> table = [] {
    auto made = UnfilledTable<kContextChecks, 15>();
    made[2] = Entry(&CheckContext);
    made[3] = Entry(&CheckMore);
    return made;
  }();
  return table;
}

// ---- handshake

const Table<3>& HandshakeTable();

CUresult RespondToRuntime(uint32_t version, uint64_t unix_seconds, uint64_t* result) {
  if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<HandshakeDevice> devices;
  if (Gate() == CUDA_SUCCESS) {
    for (const DeviceInfo& device : session().devices()) {
      devices.push_back({device.uuid, device.attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                         device.attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                         device.attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)});
    }
  }
  Handshake handshake;
  handshake.driver_version = kDriverVersion;
  handshake.version = version;
  handshake.pid = static_cast<uint32_t>(getpid());
  handshake.thread = static_cast<uint32_t>(pthread_self());
  handshake.runtime_table = &RuntimeInterface();
  handshake.handshake_table = &HandshakeTable();
  handshake.handshake_function = Entry(&RespondToRuntime);
  handshake.unix_seconds = unix_seconds;
  handshake.devices = devices;
  const std::array<uint64_t, 2> reply = RespondToHandshake(handshake);
  memcpy(result, reply.data(), sizeof(reply));
  return CUDA_SUCCESS;
}

const Table<3>& HandshakeTable() {
  static const Table<3> table = [] {
    auto made = UnfilledTable<kHandshake, 3>();
    made[1] = Entry(&RespondToRuntime);
    return made;
  }();
  return table;
}

// ---- thread state

CUresult GetThreadContext(CUcontext* context) {
  if (const CUresult gate = Gate(); gate != CUDA_SUCCESS) return gate;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = thread_state.current;
  return CUDA_SUCCESS;
}

const Table<3>& ThreadStateTable() {
  static const Table<3> table = [] {
    auto made = UnfilledTable<kThreadState, 3>();
    made[2] = Entry(&GetThreadContext);
    return made;
  }();
  return table;
}

// ---- log sink: messages of the runtime about itself

CUresult IgnoreMessage(const char*, int, const char*, va_list) { return CUDA_SUCCESS; }

const Table<3>& LogSink() {
  static const Table<3> table = [] {
    auto made = UnfilledTable<kLogSink, 3>();
    made[1] = Entry(&IgnoreMessage);
    return made;
  }();
  return table;
}

// ---- identity of contexts and streams

CUresult GetContextId(CUcontext context, uint64_t* id) {
  if (const CUresult gate = Gate(); gate != CUDA_SUCCESS) return gate;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // No context has no id, also while a context is current. cuBLAS asks in threads that have none.
  if (context == nullptr) {
    *id = 0;
    return CUDA_SUCCESS;
  }
  unsigned long long value = 0;
  const CUresult result = api::cuCtxGetId(context, &value);
  *id = value;
  return result;
}

// The object is the shim's own. Its address only comes back to GetStreamId. Streams stay in memory
// for ever.
CUresult GetStreamObject(CUcontext context, CUstream stream, void** object) {
  if (const CUresult gate = Gate(); gate != CUDA_SUCCESS) return gate;
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool other = context != nullptr && context != thread_state.current;
  if (other) {
    if (const CUresult pushed = PushContext(context); pushed != CUDA_SUCCESS) return pushed;
  }
  Stream* found = nullptr;
  const CUresult result = ResolveStream(stream, &found);
  if (other) PopContext(nullptr);
  if (result == CUDA_SUCCESS) *object = found;
  return result;
}

CUresult GetStreamId(CUcontext, void* object, uint64_t* id) {
  if (object == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = static_cast<const Stream*>(object)->unique_id;
  return CUDA_SUCCESS;
}

const Table<93>& IdentityTable() {
  static const Table<93> table = [] {
    auto made = UnfilledTable<kIdentity, 93>();
    made[4] = Entry(&GetContextId);
    made[39] = Entry(&GetStreamId);
    made[51] = Entry(&GetStreamObject);
    made[91] = nullptr;
    return made;
  }();
  return table;
}

// ---- SM topology

CUresult GetTopology(uint8_t** gpc_of_tpc, uint8_t** index_in_gpc) {
  if (const CUresult gate = Gate(); gate != CUDA_SUCCESS) return gate;
  if (gpc_of_tpc == nullptr || index_in_gpc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context;
  const uint16_t index = CurrentContext(&context) == CUDA_SUCCESS ? context->device : 0;
  const DeviceInfo& device = session().device(index);
  const size_t tpcs = device.tpc_gpc.size();
  if (tpcs == 0 || device.tpc_index.size() != tpcs) return CUDA_ERROR_NOT_SUPPORTED;
  auto* gpcs = static_cast<uint8_t*>(malloc(tpcs));
  auto* indices = static_cast<uint8_t*>(malloc(tpcs));
  if (gpcs == nullptr || indices == nullptr) {
    free(gpcs);
    free(indices);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memcpy(gpcs, device.tpc_gpc.data(), tpcs);
  memcpy(indices, device.tpc_index.data(), tpcs);
  *gpc_of_tpc = gpcs;
  *index_in_gpc = indices;
  return CUDA_SUCCESS;
}

CUresult FreeTopology(uint8_t* gpc_of_tpc, uint8_t* index_in_gpc) {
  free(gpc_of_tpc);
  free(index_in_gpc);
  return CUDA_SUCCESS;
}

const Table<17>& Topology() {
  static const Table<17> table = [] {
    auto made = UnfilledTable<kTopology, 17>();
    made[4] = Entry(&GetTopology);
    made[13] = Entry(&FreeTopology);
    return made;
  }();
  return table;
}

// ---- NVRTC's compile cache

CompileCache* MakeCache() {
  // A program that runs with more rights than its user must not write to a folder that this user
  // chooses.
  const CacheSettings settings = ReadCacheSettings(
      secure_getenv("CUDA_CACHE_DISABLE"), secure_getenv("CUDA_CACHE_MAXSIZE"),
      secure_getenv("CUDA_CACHE_PATH"), secure_getenv("XDG_CACHE_HOME"), secure_getenv("HOME"));
  if (settings.disabled) return new CompileCache(0);
  DiskCache* const disk = settings.directory.empty()
                              ? nullptr
                              : new DiskCache(settings.directory, settings.limit_bytes);
  return new CompileCache(size_t{256} << 20, disk);
}

CompileCache& Cache() {
  static CompileCache* const cache = MakeCache();
  return *cache;
}

// Lengths have 32 bits. NVRTC keeps other data behind the variable that it passes.

// `input` is the source to compile. The result depends as much on the options (one string) and on
// the compiler, which gives its host, its date and the architecture (90 for sm_90).
CUresult CacheOpen(CompileCache::Entry** handle, uint32_t kind, const void* input,
                   uint32_t input_bytes, const char* options, const char* host, const char* date,
                   uint32_t architecture) {
  if (handle == nullptr || (input == nullptr && input_bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
  std::string key(reinterpret_cast<const char*>(&kind), sizeof(kind));
  key.append(reinterpret_cast<const char*>(&architecture), sizeof(architecture));
  for (const char* text : {options, host, date}) {
    if (text != nullptr) key += text;
    key.push_back('\0');
  }
  const size_t input_begin = key.size();
  key.append(static_cast<const char*>(input), input_bytes);
  *handle = Cache().Open(std::move(key), input_begin);
  return CUDA_SUCCESS;
}

CUresult CacheClose(CompileCache::Entry* handle) {
  Cache().Close(handle);
  return CUDA_SUCCESS;
}

CUresult CacheFind(CompileCache::Entry* handle, uint64_t, void** data, uint32_t* bytes) {
  if (handle == nullptr || data == nullptr || bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  size_t found;
  if (!Cache().Find(*handle, data, &found)) return CUDA_ERROR_NOT_FOUND;
  *bytes = static_cast<uint32_t>(found);
  nvrtc_code().Note(handle->input(), {static_cast<const char*>(*data), found});
  return CUDA_SUCCESS;
}

CUresult CacheStore(CompileCache::Entry* handle, uint64_t, const void* data, uint32_t bytes) {
  if (handle == nullptr || (data == nullptr && bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
  Cache().Store(*handle, data, bytes);
  nvrtc_code().Note(handle->input(), {static_cast<const char*>(data), bytes});
  return CUDA_SUCCESS;
}

CUresult CacheFree(void* data) {
  free(data);
  return CUDA_SUCCESS;
}

const Table<7>& CompileCacheTable() {
  static const Table<7> table = [] {
    auto made = UnfilledTable<kCompileCache, 7>();
    made[1] = Entry(&CacheOpen);
    made[2] = Entry(&CacheClose);
    made[3] = Entry(&CacheFind);
    made[4] = Entry(&CacheStore);
    made[6] = Entry(&CacheFree);
    return made;
  }();
  return table;
}

// ---- cuFFT's: queries of tools about modules

// Calls `visit` for every function of the module. Returns whether it did: cuFFT takes 1 for
// success. With it cuFFT finds the function of a module that has only one, without knowing its
// name.
int VisitFunctions(CUcontext context, CUmodule module, void (*visit)(void* data, CUfunction),
                   void* data) {
  if (Gate() != CUDA_SUCCESS || visit == nullptr || FindContext(context) == nullptr) return 0;
  Library* library = FindModule(module);
  if (library == nullptr) return 0;
  std::vector<Kernel*> kernels(library->kernel_count);
  if (EnumerateKernels(*library, &kernels) != CUDA_SUCCESS) return 0;
  for (const Kernel* kernel : kernels) visit(data, FunctionHandle(*kernel));
  return 1;
}

const Table<99>& ModuleTools() {
  static const Table<99> table = [] {
    auto made = UnfilledTable<kModuleTools, 99>();
    made[7] = Entry(&VisitFunctions);
    return made;
  }();
  return table;
}

// ---- which table has which id

struct Known {
  uint8_t id[16];
  const void* (*table)();
};

template <typename Entries>
const void* Begin(const Entries& table) {
  return table.data();
}

constexpr Known kKnown[] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
      0xf9},
     [] { return Begin(RuntimeInterface()); }},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
      0x66},
     [] { return Begin(ToolCallbacks()); }},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95,
      0x93},
     [] { return Begin(LocalStorageTable()); }},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa,
      0x7e},
     [] { return Begin(ContextChecks()); }},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1,
      0xf2},
     [] { return Begin(HandshakeTable()); }},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec,
      0xdc},
     [] { return Begin(ThreadStateTable()); }},
    {{0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e, 0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d,
      0xd9},
     [] { return Begin(LogSink()); }},
    {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8,
      0xf2},
     [] { return Begin(IdentityTable()); }},
    {{0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b,
      0xca},
     [] { return Begin(Topology()); }},
    {{0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3,
      0x28},
     [] { return Begin(CompileCacheTable()); }},
    {{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99,
      0x1e},
     [] { return Begin(ModuleTools()); }},
};

}  // namespace

CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  for (const Known& known : kKnown) {
    if (memcmp(known.id, pExportTableId->bytes, sizeof(known.id)) == 0) {
      *ppExportTable = known.table();
      return CUDA_SUCCESS;
    }
  }
  if (IsToolsTable(*pExportTableId)) {
    RefuseTool();
  } else if (LogShown(LogLevel::kInfo)) {
    char text[33];
    for (int i = 0; i < 16; ++i)
      snprintf(text + 2 * i, 3, "%02x", static_cast<uint8_t>(pExportTableId->bytes[i]));
    Log(LogLevel::kInfo, "cuGetExportTable: no table %s", text);
  }
  *ppExportTable = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace detshare::shim::api
