#include "client_shim/base/thread_state.h"

namespace detshare::shim {

thread_local ThreadState thread_state __attribute__((tls_model("initial-exec"))) = {};

}  // namespace detshare::shim
