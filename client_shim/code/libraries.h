// Code as the shim holds it: libraries and modules, their kernels and global variables.
//
// A library is sent to the daemon when it is loaded, for the device that is current then; another
// device gets it when it is first used there. Each kernel is asked for once a device, with
// everything that programs want to know of it; a module is a library that belongs to one context. A
// CUfunction is its CUkernel under another kind, and means the kernel on the device of the context
// in which it is used.
//
// Descriptions of kernels stay in memory after their library is unloaded, since other threads may
// be reading them: a few hundred bytes each.
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
#include "client_shim/objects/objects.h"
#include "client_shim/transport/session.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/ring_abi.h"
#include "proto/wire/library.h"

namespace detshare::shim {

// A kernel on one device. Never changes but for the attributes, never freed.
struct KernelInstance {
  KernelId id = 0;
  uint32_t parameter_bytes = 0;
  std::vector<wire::KernelParameter> parameters;
  std::array<std::atomic<int32_t>, wire::kFunctionAttributes> attributes{};
  // Answers of the daemon to occupancy questions, forgotten when an attribute changes.
  std::mutex mutex;
  std::map<std::array<uint64_t, 8>, int64_t> occupancy;
};

struct Library;

struct Kernel {
  uint64_t handle = 0;  // CUkernel; the CUfunction is the same with another kind
  uint32_t index = 0;
  Library* library = nullptr;
  uint64_t library_handle = 0;
  const char* name = nullptr;  // never freed: programs keep it
  std::array<std::atomic<KernelInstance*>, kMaxDevices> instances{};
};

struct Global {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
};

// A CUlibrary, or a CUmodule: a library that belongs to one context.
struct Library {
  uint64_t handle = 0;  // as CUlibrary; the CUmodule is the same with another kind
  uint32_t index = 0;
  bool module = false;
  Context* context = nullptr;  // of a module
  ContextId context_id = 0;
  std::mutex mutex;  // guards the rest; held while something is asked of the daemon
  uint16_t home_device = 0;
  uint32_t kernel_count = 0;
  std::array<LibraryId, kMaxDevices> ids{};  // 0: not loaded there
  // The image, where it may be needed again: on a second device, or after the context was reset.
  std::string image;
  std::vector<std::span<const std::byte>> preserved;  // ... or where the program keeps it
  std::vector<wire::JitOption> options;
  std::map<std::string, Kernel*, std::less<>> kernels;
  std::map<std::pair<uint16_t, std::string>, Global> globals;
  // Its managed variables, on whatever devices it is loaded, and the memory that holds them.
  std::map<std::string, Global, std::less<>> managed;
  uint64_t managed_address = 0, managed_bytes = 0;
  std::vector<std::string> names;
};

// The tables of the process. Never destroyed.
struct CodeTables {
  HandleTable<Library> libraries;
  HandleTable<Kernel> kernels;
};
CodeTables& code_tables();

// Of a CUlibrary; null for everything else.
Library* FindLibrary(CUlibrary handle);
// Of a CUmodule: a loaded one, or that of a library (cuLibraryGetModule).
Library* FindModule(CUmodule handle);
// Of a CUkernel.
inline Kernel* FindKernel(CUkernel handle) {
  return code_tables().kernels.Find(HandleKind::kKernel, reinterpret_cast<uint64_t>(handle));
}
// Of a CUfunction, or of a CUkernel cast to one, which CUDA allows everywhere.
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

// Asks the daemon for the kernel on that device, and loads its library there first where that is
// needed.
CUresult LoadInstance(Kernel& kernel, uint16_t device, KernelInstance** instance);
// The kernel on that device. After its first use a plain load.
inline CUresult InstanceOn(Kernel& kernel, uint16_t device, KernelInstance** instance) {
  // Acquire: pairs with the release that published the filled instance.
  *instance = kernel.instances[device].load(std::memory_order_acquire);
  if (*instance != nullptr) [[likely]]
    return CUDA_SUCCESS;
  return LoadInstance(kernel, device, instance);
}

// The device that a call about a function or kernel means: that of the current context, else that
// of its library.
uint16_t DeviceFor(const Kernel& kernel);

// Loads an image. `context`: null for a library. `preserved`: the pieces stay where they are for
// the life of the library.
CUresult LoadLibrary(const ImagePieces& image, Context* context, uint16_t device, bool preserved,
                     JitOptions& options, Library** library);
// Waits for the work of the session, then ends the library, its kernels and its globals.
CUresult UnloadLibrary(Library& library);

// CUDA_ERROR_NOT_FOUND when the library has no such kernel.
CUresult GetKernel(Library& library, std::string_view name, Kernel** kernel);
// The first kernels->size() kernels in the library's order; *kernels is made shorter when it has
// fewer.
CUresult EnumerateKernels(Library& library, std::vector<Kernel*>* kernels);
// A global variable on the context's device. CUDA_ERROR_NOT_FOUND when there is none of that name.
CUresult GetGlobal(Library& library, Context& context, std::string_view name, Global* global);
// A managed variable. CUDA_ERROR_NOT_FOUND when there is none of that name.
CUresult GetManaged(Library& library, std::string_view name, Global* global);

// Sets an attribute of the kernel on that device, in the daemon, too.
CUresult SetKernelAttribute(Kernel& kernel, uint16_t device, CUfunction_attribute attribute,
                            int value);

// Context life `context` is over in the daemon: its modules are gone. The libraries of a device
// that now has no context are loaded again when they are next used there, so that their globals
// begin afresh.
void RetireModules(ContextId context);

}  // namespace detshare::shim
