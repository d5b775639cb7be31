// cuProfilerStart, cuProfilerStop. There is no profiler in the process, so there is nothing to do.
#include "client_shim/objects/current_context.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {

CUresult cuProfilerStart() {
  Context* context;
  return CurrentContext(&context);
}

CUresult cuProfilerStop() {
  Context* context;
  return CurrentContext(&context);
}

}  // namespace detshare::shim::api
