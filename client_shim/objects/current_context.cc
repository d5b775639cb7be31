#include "client_shim/objects/current_context.h"

#include <cstdlib>

#include "client_shim/base/thread_exit.h"

namespace detshare::shim {
namespace {

Context* g_primary[kMaxDevices];

void ReleaseStack(void*) {
  ThreadState& thread = thread_state;
  free(thread.below);
  thread.below = nullptr;
  thread.capacity = thread.depth = 0;
  thread.current = nullptr;
}

}  // namespace

void CreatePrimaryContexts() {
  for (size_t i = 0; i < session().devices().size(); ++i) {
    uint32_t index;
    Context* context = objects().contexts.Reserve(&index);
    context->index = index;
    context->device = static_cast<uint16_t>(i);
    context->primary = true;
    context->api_version = 3020;
    context->handle.store(objects().contexts.Publish(HandleKind::kContext, index),
                          std::memory_order_release);
    g_primary[i] = context;
  }
}

Context& PrimaryContext(uint16_t device) { return *g_primary[device]; }

CUresult PushContext(CUcontext handle) {
  Context* context = FindContext(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  ThreadState& thread = thread_state;
  if (thread.depth != 0) {
    if (thread.depth > thread.capacity) {
      static ThreadExit release(ReleaseStack);
      release.Arm();
      const uint32_t capacity = thread.capacity == 0 ? 16 : thread.capacity * 2;
      void* below = realloc(thread.below, capacity * sizeof(CUcontext));
      if (below == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
      thread.below = static_cast<CUcontext*>(below);
      thread.capacity = capacity;
    }
    thread.below[thread.depth - 1] = thread.current;
  }
  ++thread.depth;
  thread.current = handle;
  thread.context = context;
  return CUDA_SUCCESS;
}

CUresult PopContext(CUcontext* handle) {
  ThreadState& thread = thread_state;
  if (thread.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = thread.current;
  --thread.depth;
  thread.current = thread.depth == 0 ? nullptr : thread.below[thread.depth - 1];
  thread.context = nullptr;
  return CUDA_SUCCESS;
}

CUresult SetContext(CUcontext handle) {
  ThreadState& thread = thread_state;
  if (handle == nullptr) {
    if (thread.depth != 0) PopContext(nullptr);
    return CUDA_SUCCESS;
  }
  Context* context = FindContext(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (thread.depth == 0) thread.depth = 1;
  thread.current = handle;
  thread.context = context;
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim
