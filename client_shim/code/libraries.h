// The shim's code: libraries and modules, their kernels and global variables.
//
// When a program loads a library, the shim sends it to the daemon for the device that is current.
// Another device gets it at its first use there. The shim asks the daemon for each kernel once for
// each device, and gets everything that programs may want to know of the kernel. A module is a
// library that belongs to one context. A CUfunction is its CUkernel under another kind. It means
// the kernel on the device of the context in which it is used.
//
// Descriptions of kernels stay in memory after their library is unloaded, because other threads may
// be reading them. Each takes a few hundred bytes.
//
// Any thread may call these functions.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client_shim/base/handle_table.h"
#include "client_shim/code/image_size.h"
#include "client_shim/code/jit_options.h"
#include "client_shim/code/spare_libraries.h"
#include "client_shim/objects/objects.h"
#include "client_shim/transport/session.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/ring_abi.h"
#include "proto/wire/library.h"

namespace detshare::shim {

// A kernel on one device. Only its attributes and `occupancy` change. Never freed.
struct KernelInstance {
  KernelId id = 0;
  uint32_t parameter_bytes = 0;
  std::vector<wire::KernelParameter> parameters;
  std::array<std::atomic<int32_t>, wire::kFunctionAttributes> attributes{};
  // The daemon's replies to occupancy queries. Cleared when an attribute changes. The mutex guards
  // them.
  std::mutex mutex;
  std::map<std::array<uint64_t, 8>, int64_t> occupancy;
};

struct Library;

// A kernel of a library. Other threads may read it after the library is unloaded.
struct Kernel {
  uint64_t handle = 0;  // CUkernel; the CUfunction has the same value but for the kind
  uint32_t index = 0;
  Library* library = nullptr;
  uint64_t library_handle = 0;
  // Never freed, because programs keep it. Kernels of one name share it, as natively: programs
  // compare addresses.
  const char* name = nullptr;
  // By device; null until the first use there. Release: publishes the instance.
  std::array<std::atomic<KernelInstance*>, kMaxDevices> instances{};
};

struct Global {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
};

// A CUlibrary, or a CUmodule.
struct Library {
  uint64_t handle = 0;  // the CUlibrary; the CUmodule has the same value but for the kind
  uint32_t index = 0;
  bool module = false;
  Context* context = nullptr;  // of a module
  ContextId context_id = 0;
  std::mutex mutex;  // guards the rest; held during calls to the daemon
  uint16_t home_device = 0;
  // Why the image cannot be loaded, of a library that reports it with its first use.
  CUresult failure = CUDA_SUCCESS;
  bool host_table = false;  // it was loaded with a table of host functions
  uint32_t kernel_count = 0;
  std::array<LibraryId, kMaxDevices> ids{};  // 0: not loaded on this device
  // The image, if it may be needed again: for a second device, after the context was reset, or to
  // recognise it when it is loaded again.
  std::string image;
  std::vector<std::span<const std::byte>> preserved;  // the same where the program keeps the image
  std::vector<wire::JitOption> options;
  std::map<std::string, Kernel*, std::less<>> kernels;
  std::map<std::pair<uint16_t, std::string>, Global> globals;
  // Its managed variables, one for all devices on which the library is loaded, and the memory that
  // holds them.
  std::map<std::string, Global, std::less<>> managed;
  uint64_t managed_address = 0, managed_bytes = 0;
  bool managed_moves = false;      // the pages move between CPU and GPU
  std::vector<std::string> names;  // of its kernels, in the order in which programs get them
  // These two decide whether the library becomes a spare one when it is unloaded
  // (spare_libraries.h).
  bool without_variables = false;
  std::atomic<bool> altered{false};  // an attribute of a kernel was set; relaxed: a flag alone
  // Kernels on home_device that an earlier library of the same image asked for.
  std::map<std::string, KernelInstance*, std::less<>> known;
};

// The process's tables of code. Never destroyed.
struct CodeTables {
  HandleTable<Library> libraries;
  SpareLibraries spares;
  HandleTable<Kernel> kernels;
};
CodeTables& code_tables();

// Whether code is loaded when it is first used, which CUDA_MODULE_LOADING decides.
bool LazyLoading();

// Finds a CUlibrary. Null for any other value.
Library* FindLibrary(CUlibrary handle);
// Finds a CUmodule: a loaded one, or the module of a library (cuLibraryGetModule).
Library* FindModule(CUmodule handle);
// Finds a CUkernel.
inline Kernel* FindKernel(CUkernel handle) {
  return code_tables().kernels.Find(HandleKind::kKernel, reinterpret_cast<uint64_t>(handle));
}
// Finds a CUfunction, or a CUkernel cast to a CUfunction, which CUDA allows everywhere.
inline Kernel* FindFunction(CUfunction handle) {
  const auto value = reinterpret_cast<uint64_t>(handle);
  const auto kind = static_cast<HandleKind>(value >> 56);
  if (kind != HandleKind::kFunction && kind != HandleKind::kKernel) [[unlikely]]
    return nullptr;
  return code_tables().kernels.Find(kind, value);
}
inline CUlibrary LibraryHandle(const Library& library) {
  return reinterpret_cast<CUlibrary>(library.handle);
}
inline CUmodule ModuleHandle(const Library& library) {
  return reinterpret_cast<CUmodule>(
      HandleTable<Library>::WithKind(HandleKind::kModule, library.handle));
}
inline CUkernel KernelHandle(const Kernel& kernel) {
  return reinterpret_cast<CUkernel>(kernel.handle);
}
inline CUfunction FunctionHandle(const Kernel& kernel) {
  return reinterpret_cast<CUfunction>(
      HandleTable<Kernel>::WithKind(HandleKind::kFunction, kernel.handle));
}

// Asks the daemon for the kernel on that device. Loads its library there first if needed.
CUresult LoadInstance(Kernel& kernel, uint16_t device, KernelInstance** instance);
// The kernel on that device. After its first use this is a plain load.
inline CUresult InstanceOn(Kernel& kernel, uint16_t device, KernelInstance** instance) {
  // Acquire: pairs with the release that published the filled instance.
  *instance = kernel.instances[device].load(std::memory_order_acquire);
  if (*instance != nullptr) [[likely]]
    return CUDA_SUCCESS;
  return LoadInstance(kernel, device, instance);
}

// The device that a call about a function or kernel means: the device of the current context, else
// that of its library. For a module's kernels it is always the module's.
uint16_t DeviceFor(const Kernel& kernel);

// Loads an image. `context` is null for a library. `preserved`: the program keeps the pieces in
// place for the library's life.
CUresult LoadLibrary(const ImagePieces& image, Context* context, uint16_t device, bool preserved,
                     JitOptions& options, Library** library);
// Makes a library that cannot be loaded. It has no kernels, and its uses return `failure`.
CUresult MakeFailedLibrary(CUresult failure, uint16_t device, Library** library);
// Ends the library, its kernels and its globals. Waits for the session's work, unless the library
// becomes a spare one.
CUresult UnloadLibrary(Library& library);

// CUDA_ERROR_NOT_FOUND: the library has no such kernel.
CUresult GetKernel(Library& library, std::string_view name, Kernel** kernel);
// Gets the first kernels->size() kernels, of a module in the order of its image, of a library in
// the opposite order, as natively. Shortens *kernels if the library has fewer.
CUresult EnumerateKernels(Library& library, std::vector<Kernel*>* kernels);
// Finds a global variable on the context's device. CUDA_ERROR_NOT_FOUND: there is none of that
// name.
CUresult GetGlobal(Library& library, Context& context, std::string_view name, Global* global);
// Finds a managed variable. CUDA_ERROR_NOT_FOUND: there is none of that name.
CUresult GetManaged(Library& library, std::string_view name, Global* global);

// Sets an attribute of the kernel on that device, here and in the daemon.
CUresult SetKernelAttribute(Kernel& kernel, uint16_t device, CUfunction_attribute attribute,
                            int value);

// Ends the modules of context life `context`, whose work is complete. Unloads the libraries of
// a device that has no context left; their next use there loads them again, so that their globals
// have their initial values.
void RetireModules(ContextId context);

}  // namespace detshare::shim
