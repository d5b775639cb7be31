#include "client_shim/base/gate.h"

namespace detshare::shim {

std::atomic<CUresult> g_gate{CUDA_ERROR_NOT_INITIALIZED};

}  // namespace detshare::shim
