// Finds contexts by handle, and keeps each thread's stack of current contexts.
#pragma once

#include <cstdint>

#include "client_shim/base/thread_state.h"
#include "client_shim/objects/objects.h"
#include "client_shim/transport/session.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// The context of a handle, or null. A primary context is found even while it is not retained; its
// id is then 0.
inline Context* FindContext(CUcontext handle) {
  return objects().contexts.Find(HandleKind::kContext, reinterpret_cast<uint64_t>(handle));
}
inline CUcontext HandleOf(const Context& context) {
  return reinterpret_cast<CUcontext>(context.handle.load(std::memory_order_relaxed));
}

// Gets the calling thread's current context. CUDA_ERROR_INVALID_CONTEXT: there is none.
// CUDA_ERROR_CONTEXT_IS_DESTROYED: it was destroyed. CUDA_ERROR_NOT_PERMITTED: in a host function,
// which has none.
inline CUresult CurrentContext(Context** context) {
  ThreadState& thread = thread_state;
  if (thread.current == nullptr) [[unlikely]]
    return thread.in_host_function ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_INVALID_CONTEXT;
  Context* found = thread.context;
  if (found == nullptr || found->handle.load(std::memory_order_acquire) !=
                              reinterpret_cast<uint64_t>(thread.current)) [[unlikely]] {
    found = FindContext(thread.current);
    if (found == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    thread.context = found;
  }
  if (found->id.load(std::memory_order_acquire) == 0) [[unlikely]]
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *context = found;
  return CUDA_SUCCESS;
}

// The same for calls that reach the device. Also returns the session's sticky error.
inline CUresult ContextForWork(Context** context) {
  if (const CUresult error = session().sticky_error(); error != CUDA_SUCCESS) [[unlikely]]
    return error;
  return CurrentContext(context);
}

// Change the calling thread's stack. PushContext needs a handle that is not null. SetContext
// replaces the top, and a null handle pops it. PopContext accepts a null pointer.
// CUDA_ERROR_INVALID_CONTEXT: no such context, or the stack is empty.
CUresult PushContext(CUcontext handle);
CUresult PopContext(CUcontext* handle);
CUresult SetContext(CUcontext handle);

// Called once, at initialisation.
void CreatePrimaryContexts();
// The primary context of a valid device.
Context& PrimaryContext(uint16_t device);

}  // namespace detshare::shim
