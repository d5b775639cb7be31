#include "server/session/session_device.h"

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/gpu_coroutine.h"

namespace detshare {

SessionDevice::SessionDevice() = default;
SessionDevice::SessionDevice(SessionDevice&&) noexcept = default;
SessionDevice::~SessionDevice() = default;

}  // namespace detshare
