// cuDriverGetVersion, and the names and versions under which programs find entry points.
#include "client_shim/base/version.h"

#include "proto/driver_api/proc_address.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {

CUresult cuDriverGetVersion(int* driverVersion) {
  *driverVersion = kDriverVersion;
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  return GetProcAddressV1(symbol, pfn, cudaVersion, flags, kDriverVersion, EntryPoint);
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  return GetProcAddress(symbol, pfn, cudaVersion, flags, symbolStatus, kDriverVersion, EntryPoint);
}

}  // namespace detshare::shim::api
