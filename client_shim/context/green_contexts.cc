#include "client_shim/context/green_contexts.h"

#include "client_shim/context/contexts.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/streams.h"

namespace detshare::shim {

HandleTable<GreenContext>& green_contexts() {
  static auto* const table = new HandleTable<GreenContext>;
  return *table;
}

GreenContext* FindGreenContext(CUgreenCtx handle) {
  return green_contexts().Find(HandleKind::kGreenContext, reinterpret_cast<uint64_t>(handle));
}

SmTopology TopologyOf(uint16_t device_index) {
  const DeviceInfo& device = session().device(device_index);
  return {device_index,
          static_cast<uint32_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)),
          device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), device.tpc_gpc};
}

CUresult CreateGreenContext(uint16_t device, const SmSet& sms, CUgreenCtx* handle) {
  uint32_t index;
  GreenContext* green = green_contexts().Reserve(&index);
  if (green == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUcontext primary;
  CUresult result = RetainPrimary(device, &primary);
  if (result == CUDA_SUCCESS) {
    result = CreateAlias(PrimaryContext(device), &green->context);
    if (result != CUDA_SUCCESS) ReleasePrimary(device);
  }
  if (result != CUDA_SUCCESS) {
    green_contexts().Recycle(index);
    return result;
  }
  green->index = index;
  green->id = NextContextId();
  green->sms = sms;
  // A green context's SMs count as not split, so the program may split them.
  green->sms.split = 0;
  const uint64_t value = green_contexts().Publish(HandleKind::kGreenContext, index);
  green->context->green.store(value, std::memory_order_release);
  green->handle.store(value, std::memory_order_release);
  *handle = reinterpret_cast<CUgreenCtx>(value);
  return CUDA_SUCCESS;
}

CUresult DestroyGreenContext(CUgreenCtx handle) {
  GreenContext* green = FindGreenContext(handle);
  if (green == nullptr || !green_contexts().Retire(reinterpret_cast<uint64_t>(handle)))
    return CUDA_ERROR_INVALID_CONTEXT;
  const uint16_t device = green->context->device;
  const CUresult result = DestroyAlias(*green->context);
  green_contexts().Recycle(green->index);
  const CUresult released = ReleasePrimary(device);
  return result != CUDA_SUCCESS ? result : released;
}

}  // namespace detshare::shim
