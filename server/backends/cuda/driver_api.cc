#include "server/backends/cuda/driver_api.h"

#include <dlfcn.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace detshare::cuda {
namespace {

// The shim's libcuda.so.1 exports this symbol; a real one does not.
constexpr char kShimSymbol[] = "detshare_shim_version";

std::vector<std::string> Candidates(const std::string& path) {
  if (!path.empty()) return {path};
  // Full paths come first: the shim may come first on the library path with which the daemon was
  // started.
  return {
      "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
      "/usr/lib64/libcuda.so.1",
      "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1",
      "/usr/local/nvidia/lib64/libcuda.so.1",
      "/usr/local/nvidia/lib/libcuda.so.1",
      "/run/opengl-driver/lib/libcuda.so.1",
      "/usr/lib/wsl/lib/libcuda.so.1",
      "libcuda.so.1",
  };
}

}  // namespace

absl::StatusOr<std::unique_ptr<DriverApi>> OpenDriver(const std::string& path) {
  std::string tried;
  for (const std::string& candidate : Candidates(path)) {
    void* library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const error = dlerror();
      const std::string reason = error == nullptr ? candidate : error;
      // Of the usual places, those without the file explain nothing.
      if (path.empty() && absl::StartsWith(reason, absl::StrCat(candidate, ": cannot open shared")))
        continue;
      absl::StrAppend(&tried, tried.empty() ? "" : "; ", reason);
      continue;
    }
    if (path.empty() && dlsym(library, kShimSymbol) != nullptr) {
      absl::StrAppend(&tried, tried.empty() ? "" : "; ", candidate,
                      " is DetShare's own library, not the driver's");
      dlclose(library);
      continue;
    }
    const auto get_proc_address =
        reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
    if (get_proc_address == nullptr) {
      absl::StrAppend(&tried, tried.empty() ? "" : "; ", candidate, " is older than CUDA 12");
      dlclose(library);
      continue;
    }
    auto api = std::make_unique<DriverApi>();
    api->path = candidate;
    std::string missing;
    const auto resolve = [&](const char* name, int version) -> void* {
      void* function = nullptr;
      CUdriverProcAddressQueryResult found;
      const CUresult result =
          get_proc_address(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &found);
      return result == CUDA_SUCCESS ? function : nullptr;
    };
#define DETSHARE_RESOLVE(name, version) \
  api->name = reinterpret_cast<PFN_##name##_v##version>(resolve(#name, version));
// This does not use DETSHARE_RESOLVE, because cuda.h's names are macros, which an outer macro would
// expand.
#define DETSHARE_REQUIRE(name, version)                                           \
  api->name = reinterpret_cast<PFN_##name##_v##version>(resolve(#name, version)); \
  if (api->name == nullptr) absl::StrAppend(&missing, missing.empty() ? "" : ", ", #name);
    DETSHARE_DRIVER_FUNCTIONS(DETSHARE_REQUIRE)
    DETSHARE_NEWER_DRIVER_FUNCTIONS(DETSHARE_RESOLVE)
#undef DETSHARE_REQUIRE
#undef DETSHARE_RESOLVE
    if (!missing.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(candidate, " is too old, it lacks ", missing));
    }
    return api;
  }
  if (tried.empty()) tried = "libcuda.so.1 is not installed";
  return absl::NotFoundError(absl::StrCat("no CUDA driver: ", tried));
}

}  // namespace detshare::cuda
