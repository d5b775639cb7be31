// cuInit.
#include "client_shim/entry/process.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {

CUresult cuInit(unsigned int Flags) { return Flags != 0 ? CUDA_ERROR_INVALID_VALUE : Initialise(); }

}  // namespace detshare::shim::api
