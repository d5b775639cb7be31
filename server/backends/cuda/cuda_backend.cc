#include "server/backends/cuda/cuda_backend.h"

#include <cstdlib>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/cuda_device.h"
#include "server/backends/cuda/cuda_managed_memory.h"
#include "server/backends/cuda/driver_api.h"
#include "server/backends/cuda/driver_output.h"
#include "server/backends/cuda/other_sharing.h"
#include "server/backends/cuda/uvm_sharing.h"

namespace detshare {
namespace {

// Gives the devices managed memory, if the kernel module and all of them can share it.
void ShareMemory(const std::vector<std::unique_ptr<cuda::CudaDevice>>& devices,
                 const ManagedWindow& window) {
  std::vector<cuda::CudaContext*> contexts;
  for (const auto& device : devices) contexts.push_back(&device->context());
  const std::shared_ptr<ManagedMemory> memory =
      cuda::CudaManagedMemory::Create(std::move(contexts), window);
  for (const auto& device : devices) device->set_managed_memory(memory);
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Device>>> CreateCudaDevices(const CudaOptions& options) {
  DETSHARE_RETURN_IF_ERROR(RefuseMps(MpsPipeDirectory()));
  // Uploads code only when it is needed, because an upload drains the device.
  setenv("CUDA_MODULE_LOADING", "LAZY", /*overwrite=*/1);
  // Streams share hardware queues if there are more streams than hardware queues, and then wait for
  // each other there.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", absl::StrCat(options.connections).c_str(), /*overwrite=*/0);
  DETSHARE_ASSIGN_OR_RETURN(std::unique_ptr<cuda::DriverApi> opened,
                            cuda::OpenDriver(options.driver_path));
  const std::shared_ptr<const cuda::DriverApi> api = std::move(opened);
  const auto absent = [&](CUresult result, const char* call) {
    const char* name = nullptr;
    api->cuGetErrorName(result, &name);
    return absl::NotFoundError(absl::StrCat(api->path, " shows no GPU: ", call, ": ",
                                            name == nullptr ? "unknown error" : name));
  };
  cuda::DriverOutput::Get();  // from the first text on
  if (options.managed.bytes != 0) cuda::ShareManagedMemory();
  if (CUresult result = api->cuInit(0); result != CUDA_SUCCESS) {
    absl::Status status = absent(result, "cuInit");
    if (result == CUDA_ERROR_NO_DEVICE) return status;
    return absl::UnavailableError(status.message());
  }
  int count = 0;
  if (CUresult result = api->cuDeviceGetCount(&count); result != CUDA_SUCCESS || count == 0) {
    return absent(result, "cuDeviceGetCount");
  }
  const auto registry = std::make_shared<cuda::HostRegistry>();
  std::vector<std::unique_ptr<cuda::CudaDevice>> made;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    DETSHARE_ASSIGN_OR_RETURN(made.emplace_back(),
                              cuda::CudaDevice::Create(api, registry, ordinal, options));
  }
  if (options.managed.bytes != 0) ShareMemory(made, options.managed);
  return std::vector<std::unique_ptr<Device>>(std::make_move_iterator(made.begin()),
                                              std::make_move_iterator(made.end()));
}

}  // namespace detshare
