// Libraries and modules.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "client_shim/code/libraries.h"
#include "client_shim/code/read_file.h"
#include "client_shim/objects/current_context.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

// Sets whether the program keeps the image for the library's life, and whether it gives a table of
// host functions.
CUresult ParseLibraryOptions(unsigned int count, const CUlibraryOption* options, void** values,
                             bool* preserved, bool* host_table) {
  *preserved = *host_table = false;
  if (count != 0 && options == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) {
    int option;  // the program may have written any number
    memcpy(&option, &options[i], sizeof(option));
    switch (option) {
      // Host functions by device address. The shim does not need them.
      case CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE:
        *host_table = true;
        break;
      case CU_LIBRARY_BINARY_IS_PRESERVED:
        *preserved = values == nullptr || values[i] != nullptr;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

// A library is loaded for the current context's device. Without a current context it is loaded for
// the first device.
uint16_t CurrentDevice() {
  Context* context;
  return CurrentContext(&context) == CUDA_SUCCESS ? context->device : 0;
}

CUresult LoadModule(CUmodule* module, const ImagePieces& image, JitOptions& options) {
  Context* context;
  if (const CUresult result = ContextForWork(&context); result != CUDA_SUCCESS) return result;
  Library* library;
  const CUresult result = LoadLibrary(image, context, context->device, false, options, &library);
  if (result == CUDA_SUCCESS) *module = ModuleHandle(*library);
  return result;
}

// Whether it lies in the code itself that it cannot be loaded.
bool CodeIsWrong(CUresult result) {
  return result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_PTX ||
         result == CUDA_ERROR_INVALID_SOURCE || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption* libraryOptions, void** libraryOptionValues,
                           unsigned int numLibraryOptions) {
  bool preserved, host_table;
  CUresult result = ParseLibraryOptions(numLibraryOptions, libraryOptions, libraryOptionValues,
                                        &preserved, &host_table);
  if (result != CUDA_SUCCESS) return result;
  JitOptions options;
  result = options.Parse(numJitOptions, jitOptions, jitOptionsValues);
  if (result != CUDA_SUCCESS) return result;
  ImagePieces image;
  Library* made;
  result = MeasureImage(code, &image);
  if (result == CUDA_SUCCESS)
    result = LoadLibrary(image, nullptr, CurrentDevice(), preserved, options, &made);
  // NVIDIA's driver looks at the code when the library is first used.
  if (CodeIsWrong(result) && LazyLoading())
    result = MakeFailedLibrary(result, CurrentDevice(), &made);
  if (result != CUDA_SUCCESS) return result;
  made->host_table = host_table;
  *library = LibraryHandle(*made);
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption* libraryOptions, void** libraryOptionValues,
                               unsigned int numLibraryOptions) {
  bool preserved, host_table;
  CUresult result = ParseLibraryOptions(numLibraryOptions, libraryOptions, libraryOptionValues,
                                        &preserved, &host_table);
  if (result != CUDA_SUCCESS) return result;
  JitOptions options;
  result = options.Parse(numJitOptions, jitOptions, jitOptionsValues);
  if (result != CUDA_SUCCESS) return result;
  std::string file;
  result = ReadFile(fileName, &file);
  if (result != CUDA_SUCCESS) return result;
  ImagePieces image;
  result = CheckImage(std::as_bytes(std::span(file)), &image);
  if (result != CUDA_SUCCESS) return result;
  Library* made;
  result = LoadLibrary(image, nullptr, CurrentDevice(), false, options, &made);
  if (result != CUDA_SUCCESS) return result;
  made->host_table = host_table;
  *library = LibraryHandle(*made);
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
  Library* found = FindLibrary(library);
  return found != nullptr ? UnloadLibrary(*found) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  Library* found = FindLibrary(library);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Kernel* kernel;
  const CUresult result = GetKernel(*found, name, &kernel);
  if (result == CUDA_SUCCESS) *pKernel = KernelHandle(*kernel);
  return result;
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  Library* found = FindLibrary(lib);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *count = found->kernel_count;
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  Library* found = FindLibrary(lib);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (kernels == nullptr && numKernels != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Kernel*> all(std::min(numKernels, found->kernel_count));
  const CUresult result = EnumerateKernels(*found, &all);
  if (result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < all.size(); ++i) kernels[i] = KernelHandle(*all[i]);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  Library* found = FindLibrary(library);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Context* context;
  if (const CUresult result = CurrentContext(&context); result != CUDA_SUCCESS) return result;
  if (found->failure != CUDA_SUCCESS) return found->failure;
  *pMod = ModuleHandle(*found);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  Library* found = FindLibrary(library);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (*name == '\0' || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  Context* context;
  if (const CUresult result = ContextForWork(&context); result != CUDA_SUCCESS) return result;
  Global global;
  const CUresult result = GetGlobal(*found, *context, name, &global);
  // After an error the results stay as they were, unlike those of cuModuleGetGlobal.
  if (result != CUDA_SUCCESS) return result;
  if (dptr != nullptr) *dptr = global.address;
  if (bytes != nullptr) *bytes = global.bytes;
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetUnifiedFunction(void** fptr, CUlibrary library, const char* symbol) {
  const Library* found = FindLibrary(library);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return found->host_table ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuModuleGetTexRef(CUtexref* pTexRef, CUmodule hmod, const char* name) {
  Library* found = FindModule(hmod);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // The name of a kernel is no other name, and a module without kernels uses no texture.
  Kernel* kernel;
  const bool certain = found->kernel_count == 0 || GetKernel(*found, name, &kernel) == CUDA_SUCCESS;
  return certain ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                             const char* name) {
  Library* found = FindLibrary(library);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (*name == '\0' || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  Global variable;
  const CUresult result = GetManaged(*found, name, &variable);
  if (result != CUDA_SUCCESS) return result;
  if (dptr != nullptr) *dptr = variable.address;
  if (bytes != nullptr) *bytes = variable.bytes;
  return CUDA_SUCCESS;
}

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  Context* context;
  if (const CUresult result = ContextForWork(&context); result != CUDA_SUCCESS) return result;
  std::string file;
  if (const CUresult result = ReadFile(fname, &file); result != CUDA_SUCCESS) return result;
  ImagePieces image;
  if (const CUresult result = CheckImage(std::as_bytes(std::span(file)), &image);
      result != CUDA_SUCCESS)
    return result;
  JitOptions options;
  return LoadModule(module, image, options);
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return api::cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
  Context* context;
  if (const CUresult result = ContextForWork(&context); result != CUDA_SUCCESS) return result;
  JitOptions parsed;
  if (const CUresult result = parsed.Parse(numOptions, options, optionValues);
      result != CUDA_SUCCESS)
    return result;
  ImagePieces pieces;
  if (const CUresult result = MeasureImage(image, &pieces); result != CUDA_SUCCESS) return result;
  return LoadModule(module, pieces, parsed);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return api::cuModuleLoadDataEx(module, fatCubin, 0, nullptr, nullptr);
}

CUresult cuModuleUnload(CUmodule hmod) {
  Library* found = FindModule(hmod);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // The module of a library ends with the library.
  return found->module ? UnloadLibrary(*found) : CUDA_ERROR_NOT_PERMITTED;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  *mode = LazyLoading() ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  Library* found = FindModule(hmod);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (*name == '\0') return CUDA_ERROR_INVALID_VALUE;
  Kernel* kernel;
  const CUresult result = GetKernel(*found, name, &kernel);
  if (result == CUDA_SUCCESS) *hfunc = FunctionHandle(*kernel);
  if (result == CUDA_ERROR_NOT_FOUND) *hfunc = nullptr;
  return result;
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  Library* found = FindModule(mod);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *count = found->kernel_count;
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                    CUmodule mod) {
  Library* found = FindModule(mod);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (functions == nullptr && numFunctions != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Kernel*> all(std::min(numFunctions, found->kernel_count));
  const CUresult result = EnumerateKernels(*found, &all);
  if (result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < all.size(); ++i) functions[i] = FunctionHandle(*all[i]);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  Library* found = FindModule(hmod);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // After an error the results are zero, as natively.
  if (dptr != nullptr) *dptr = 0;
  if (bytes != nullptr) *bytes = 0;
  if (*name == '\0' || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  Context* context;
  if (found->module) {
    context = found->context;
  } else if (const CUresult result = ContextForWork(&context); result != CUDA_SUCCESS) {
    return result;
  }
  Global global;
  const CUresult result = GetGlobal(*found, *context, name, &global);
  if (dptr != nullptr) *dptr = global.address;
  if (bytes != nullptr) *bytes = global.bytes;
  return result;
}

}  // namespace detshare::shim::api
