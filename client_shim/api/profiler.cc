// cuProfilerStart, cuProfilerStop. The process has no profiler, so they do nothing.
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
