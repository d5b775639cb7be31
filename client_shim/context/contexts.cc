#include "client_shim/context/contexts.h"

#include <atomic>
#include <mutex>

#include "client_shim/base/thread_state.h"
#include "client_shim/code/libraries.h"
#include "client_shim/memory/host_memory.h"
#include "client_shim/memory/managed_memory.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/objects/waits.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/graph/graph_memory.h"
#include "client_shim/work/streams.h"
#include "proto/wire/context.h"

namespace detshare::shim {
namespace {

struct Primary {
  std::mutex mutex;  // held while the context begins or ends; guards `retained`
  uint32_t retained = 0;
  // As cuDevicePrimaryCtxSetFlags set them. cuCtxSetFlags changes only the context's own flags.
  std::atomic<uint32_t> flags{0};
};
Primary g_primary[kMaxDevices];

std::atomic<uint32_t> g_living{0};  // lives of contexts; relaxed: a number alone

// CUDA_ERROR_OUT_OF_MEMORY at the session's limit.
CUresult Begin(Context& context) {
  if (g_living.fetch_add(1, std::memory_order_relaxed) >= session().object_limits().contexts) {
    g_living.fetch_sub(1, std::memory_order_relaxed);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const DeviceInfo& device = session().device(context.device);
  for (uint32_t i = 0; i < kLimitCount; ++i) {
    context.limits[i].store(i < device.limits.size() ? device.limits[i] : 0,
                            std::memory_order_relaxed);
  }
  context.cache_config.store(CU_FUNC_CACHE_PREFER_NONE, std::memory_order_relaxed);
  context.shared_config.store(CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE, std::memory_order_relaxed);
  // Release: publishes the stores above.
  context.id.store(NextContextId(), std::memory_order_release);
  return CUDA_SUCCESS;
}

// Called when the context's own streams have ended.
void Forget(Context& context) {
  context.legacy.store(nullptr, std::memory_order_release);
  const std::lock_guard lock(context.mutex);
  context.collector = context.gate = nullptr;
  context.ordering = nullptr;
  context.gated.store(false, std::memory_order_relaxed);
}

// Waits for the context's work, then ends everything in the context, here and in the daemon.
CUresult End(Context& context) {
  // Destructors may still use the context.
  context.storage.Clear(HandleOf(context));
  // The program keeps what the work has written to host memory. The memory is unmapped before the
  // daemon gives its addresses to other allocations.
  if (context.id.load(std::memory_order_acquire) != 0) SynchronizeContext(context);
  const ContextId id = context.id.exchange(0, std::memory_order_acq_rel);
  if (id == 0) return CUDA_SUCCESS;  // another thread was first
  ForgetGraphMemory(id);
  // After this, nothing is freed in the context any more: neither by the program nor by clean-up.
  ForgetMemoryOf(id);
  ForgetManagedPieces(id);
  RetireModules(id);
  const CUresult result =
      session().Call(Op::cuCtxDestroy_v2, context.device, id, wire::cuCtxDestroy_v2{id, 0});
  g_living.fetch_sub(1, std::memory_order_relaxed);
  RetireStreamsAndEvents(id);
  Forget(context);
  // Contexts that stand for a part of this one end with it.
  objects().contexts.ForEach([id](Context& other) {
    ContextId same = id;
    if (other.id.compare_exchange_strong(same, 0, std::memory_order_acq_rel)) Forget(other);
  });
  session().DrainOutput();
  return result;
}

}  // namespace

ContextId NextContextId() {
  static std::atomic<ContextId> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

bool ContextFlagsValid(uint32_t flags) {
  const uint32_t schedule = flags & CU_CTX_SCHED_MASK;
  return (flags & ~static_cast<uint32_t>(CU_CTX_FLAGS_MASK)) == 0 &&
         (schedule == 0 || schedule == CU_CTX_SCHED_SPIN || schedule == CU_CTX_SCHED_YIELD ||
          schedule == CU_CTX_SCHED_BLOCKING_SYNC);
}

CUresult CreateContext(uint16_t device, uint32_t flags, uint32_t api_version, CUcontext* handle) {
  uint32_t index;
  Context* context = objects().contexts.Reserve(&index);
  if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  context->index = index;
  context->device = device;
  context->primary = false;
  context->api_version = api_version;
  context->flags.store(flags, std::memory_order_relaxed);
  Forget(*context);
  context->green.store(0, std::memory_order_relaxed);
  if (const CUresult begun = Begin(*context); begun != CUDA_SUCCESS) {
    objects().contexts.Recycle(index);
    return begun;
  }
  const uint64_t value = objects().contexts.Publish(HandleKind::kContext, index);
  context->handle.store(value, std::memory_order_release);
  context->destroyable.store(value, std::memory_order_release);
  const CUcontext created = reinterpret_cast<CUcontext>(value);
  const CUresult result = PushContext(created);
  if (result != CUDA_SUCCESS) {
    DestroyContext(created);
    return result;
  }
  *handle = created;
  return CUDA_SUCCESS;
}

CUresult DestroyContext(CUcontext handle) {
  Context* context = FindContext(handle);
  if (context == nullptr || context->primary || context->green.load(std::memory_order_acquire) != 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  // Another thread may have destroyed the context since FindContext, and its place may be that of a
  // new context, which has another handle.
  uint64_t claimed = reinterpret_cast<uint64_t>(handle);
  if (!context->destroyable.compare_exchange_strong(claimed, 0, std::memory_order_acq_rel))
    return CUDA_ERROR_INVALID_CONTEXT;
  // The storage's destructors may ask about the context, so its handle ends after them.
  CUresult result = End(*context);
  objects().contexts.Retire(reinterpret_cast<uint64_t>(handle));
  context->handle.store(0, std::memory_order_release);
  objects().contexts.Recycle(context->index);
  if (thread_state.current == handle) PopContext(nullptr);
  return result;
}

CUresult CreateAlias(Context& primary, Context** made) {
  uint32_t index;
  Context* alias = objects().contexts.Reserve(&index);
  if (alias == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  alias->index = index;
  alias->device = primary.device;
  alias->primary = false;
  alias->api_version = primary.api_version;
  alias->flags.store(primary.flags.load(std::memory_order_relaxed), std::memory_order_relaxed);
  Forget(*alias);
  for (uint32_t i = 0; i < kLimitCount; ++i) {
    alias->limits[i].store(primary.limits[i].load(std::memory_order_relaxed),
                           std::memory_order_relaxed);
  }
  alias->id.store(primary.id.load(std::memory_order_acquire), std::memory_order_release);
  alias->handle.store(objects().contexts.Publish(HandleKind::kContext, index),
                      std::memory_order_release);
  *made = alias;
  return CUDA_SUCCESS;
}

CUresult DestroyAlias(Context& alias) {
  const uint64_t handle = alias.handle.load(std::memory_order_acquire);
  alias.storage.Clear(reinterpret_cast<CUcontext>(handle));
  if (!objects().contexts.Retire(handle)) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult result = CUDA_SUCCESS;
  if (alias.id.exchange(0, std::memory_order_acq_rel) != 0) {
    result = DestroyStreamsOf(alias);
    if (alias.ordering != nullptr) DestroyEvent(alias.ordering);
  }
  Forget(alias);
  alias.green.store(0, std::memory_order_release);
  alias.handle.store(0, std::memory_order_release);
  objects().contexts.Recycle(alias.index);
  return result;
}

CUresult RetainPrimary(uint16_t device, CUcontext* handle) {
  Primary& primary = g_primary[device];
  const std::lock_guard lock(primary.mutex);
  Context& context = PrimaryContext(device);
  if (primary.retained == 0 && context.id.load(std::memory_order_acquire) == 0) {
    context.flags.store(primary.flags.load(std::memory_order_relaxed), std::memory_order_relaxed);
    if (const CUresult begun = Begin(context); begun != CUDA_SUCCESS) return begun;
  }
  ++primary.retained;
  *handle = HandleOf(context);
  return CUDA_SUCCESS;
}

CUresult ReleasePrimary(uint16_t device) {
  Primary& primary = g_primary[device];
  const std::lock_guard lock(primary.mutex);
  if (primary.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (primary.retained > 1) {
    --primary.retained;
    return CUDA_SUCCESS;
  }
  const CUresult result = End(PrimaryContext(device));
  primary.retained = 0;
  return result;
}

CUresult ResetPrimary(uint16_t device) {
  Primary& primary = g_primary[device];
  const std::lock_guard lock(primary.mutex);
  Context& context = PrimaryContext(device);
  if (context.id.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  const CUresult result = End(context);
  primary.retained = 0;
  primary.flags.store(0, std::memory_order_relaxed);
  context.flags.store(0, std::memory_order_relaxed);
  return result;
}

CUresult SetPrimaryFlags(uint16_t device, uint32_t flags) {
  // A primary context always maps host memory, and NVIDIA's driver refuses the flag here.
  if (!ContextFlagsValid(flags) || (flags & CU_CTX_MAP_HOST) != 0) return CUDA_ERROR_INVALID_VALUE;
  g_primary[device].flags.store(flags, std::memory_order_relaxed);
  PrimaryContext(device).flags.store(flags, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

uint32_t PrimaryFlags(uint16_t device) {
  return g_primary[device].flags.load(std::memory_order_relaxed);
}

bool PrimaryActive(uint16_t device) {
  return PrimaryContext(device).id.load(std::memory_order_acquire) != 0;
}

}  // namespace detshare::shim
