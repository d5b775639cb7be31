// Sharing between processes of one user. A handle has a word that names its kind, and then a token
// of the daemon. The rest is zero.
#include "proto/wire/ipc.h"

#include <cstring>
#include <mutex>

#include "client_shim/memory/pointer_map.h"
#include "client_shim/memory/shared_memory.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

// "IPCEVNT1" and "IPCMEMO1" in memory order.
constexpr uint64_t kEventMagic = 0x31544E5645435049;
constexpr uint64_t kMemoryMagic = 0x314F4D454D435049;

// Held while memory is opened or closed, so that the shim's entries follow the daemon's order.
std::mutex g_opening;

// Handles have 64 bytes: a magic word, then the token.
template <typename Handle>
void WriteHandle(uint64_t magic, const wire::IpcToken& token, Handle* handle) {
  static_assert(sizeof(handle->reserved) >= sizeof(magic) + sizeof(token));
  memset(handle->reserved, 0, sizeof(handle->reserved));
  memcpy(handle->reserved, &magic, sizeof(magic));
  memcpy(handle->reserved + sizeof(magic), &token, sizeof(token));
}

template <typename Handle>
bool ReadHandle(uint64_t magic, const Handle& handle, wire::IpcToken* token) {
  memcpy(token, handle.reserved + sizeof(magic), sizeof(*token));
  return memcmp(handle.reserved, &magic, sizeof(magic)) == 0;
}

}  // namespace

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  const Event* found = FindEvent(event);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!found->interprocess()) {
    // NVIDIA's driver writes the handle nevertheless.
    memset(pHandle, 0, sizeof(*pHandle));
    return CUDA_ERROR_INVALID_HANDLE;
  }
  wire::cuIpcGetEventHandle_Reply reply{};
  const CUresult result = session().Call(Op::cuIpcGetEventHandle, found->device, found->context_id,
                                         wire::cuIpcGetEventHandle{found->id, 0}, &reply);
  if (result == CUDA_SUCCESS) WriteHandle(kEventMagic, reply.token, pHandle);
  return result;
}

CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  Context* context;
  const CUresult result = ContextForWork(&context);
  if (result != CUDA_SUCCESS) return result;
  wire::IpcToken token;
  if (!ReadHandle(kEventMagic, handle, &token)) return CUDA_ERROR_INVALID_VALUE;
  return OpenEvent(*context, token, phEvent);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  Context* context;
  CUresult result = ContextForWork(&context);
  if (result != CUDA_SUCCESS) return result;
  Allocation allocation;
  // Only memory of cuMemAlloc. Memory of pools has its own handles.
  if (!pointers().Find(dptr, &allocation) || allocation.kind != MemoryKind::kDevice ||
      allocation.of_graph || allocation.pool != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  wire::cuIpcGetMemHandle_Reply reply{};
  NoteSharedMemory();
  result = session().Call(Op::cuIpcGetMemHandle, allocation.device, allocation.context,
                          wire::cuIpcGetMemHandle{allocation.address}, &reply);
  if (result == CUDA_SUCCESS) WriteHandle(kMemoryMagic, reply.token, pHandle);
  return result;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  Context* context;
  CUresult result = ContextForWork(&context);
  if (result != CUDA_SUCCESS) return result;
  wire::cuIpcOpenMemHandle_v2 args{};
  if (Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
      !ReadHandle(kMemoryMagic, handle, &args.token)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  args.context = context->id.load(std::memory_order_acquire);
  const std::lock_guard lock(g_opening);
  wire::cuIpcOpenMemHandle_v2_Reply reply{};
  NoteSharedMemory();
  result = session().Call(Op::cuIpcOpenMemHandle_v2, context->device, args.context, args, &reply);
  if (result != CUDA_SUCCESS) return result;
  if (reply.device >= session().devices().size()) return CUDA_ERROR_UNKNOWN;
  Allocation allocation;
  allocation.kind = MemoryKind::kOpened;
  allocation.device = static_cast<uint16_t>(reply.device);
  allocation.context = args.context;
  allocation.context_handle = context->handle.load(std::memory_order_relaxed);
  allocation.address = allocation.gpu_address = reply.address;
  allocation.bytes = reply.bytes;
  // If the memory was opened before, the entry exists already.
  pointers().AddUnlessOverlapping(allocation);
  *pdptr = reply.address;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  Context* context;
  CUresult result = ContextForWork(&context);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(g_opening);
  Allocation allocation;
  if (!pointers().Find(dptr, &allocation) || allocation.kind != MemoryKind::kOpened ||
      allocation.pool != 0 || allocation.address != dptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  wire::cuIpcCloseMemHandle_Reply reply{};
  result = session().Call(Op::cuIpcCloseMemHandle, allocation.device, allocation.context,
                          wire::cuIpcCloseMemHandle{dptr}, &reply);
  if (result == CUDA_SUCCESS && reply.still_open == 0)
    pointers().Take(dptr, MemoryKind::kOpened, &allocation);
  session().DrainOutput();
  return result;
}

}  // namespace detshare::shim::api
