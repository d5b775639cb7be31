// Memory pools that processes of one user share.
//
// A pool has a name of 16 bytes: 8 are random, and 8 are a digest of its device's UUID. The name
// gives no access to memory. Access comes from the pointer's token, which the daemon made for the
// allocation (proto/wire/ipc.h).
#include <sys/random.h>

#include <cstring>
#include <mutex>

#include "client_shim/memory/memory_pools.h"
#include "client_shim/memory/pointer_map.h"
#include "client_shim/memory/share_descriptor.h"
#include "client_shim/memory/shared_memory.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/transport/session.h"
#include "proto/driver_api/shim_api.h"
#include "proto/wire/ipc.h"

namespace detshare::shim::api {
namespace {

std::mutex g_identities;  // guards MemoryPool::identity

using Identity = std::array<uint8_t, 16>;
static_assert(sizeof(Identity) == sizeof(wire::ShareToken));

// FNV-1a.
uint64_t DigestOf(const CUuuid& uuid) {
  uint64_t digest = 0xcbf29ce484222325;
  for (const char byte : uuid.bytes)
    digest = (digest ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return digest;
}

CUresult IdentityOf(MemoryPool& pool, Identity* identity) {
  const std::lock_guard lock(g_identities);
  if (pool.identity == Identity{}) {
    const uint64_t device = DigestOf(session().device(pool.device).uuid);
    if (getrandom(pool.identity.data(), 8, 0) != 8) return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(pool.identity.data() + 8, &device, sizeof(device));
  }
  *identity = pool.identity;
  return CUDA_SUCCESS;
}

bool Exportable(const MemoryPool& pool) {
  return (pool.handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
}

// The contents of CUmemPoolPtrExportData.
struct ExportedPointer {
  char magic[8];
  Identity pool;
  wire::IpcToken memory;
  uint8_t zero[24];
};
static_assert(sizeof(ExportedPointer) == sizeof(CUmemPoolPtrExportData));
constexpr char kMagic[8] = {'P', 'O', 'O', 'L', 'P', 'T', 'R', '1'};

}  // namespace

CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags) {
  MemoryPool* found = FindPool(pool);
  if (found == nullptr || flags != 0 || !Exportable(*found) ||
      handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Identity identity;
  const CUresult result = IdentityOf(*found, &identity);
  if (result != CUDA_SUCCESS) return result;
  wire::ShareToken token;
  memcpy(&token, identity.data(), sizeof(token));
  const CUresult made =
      MakeShareDescriptor(ShareKind::kMemoryPool, token, static_cast<int*>(handle_out));
  if (made == CUDA_SUCCESS) found->exported.store(true, std::memory_order_release);
  return made;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags) {
  if (flags != 0 || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  wire::ShareToken token;
  const int descriptor = static_cast<int>(reinterpret_cast<intptr_t>(handle));
  const CUresult result = ReadShareDescriptor(ShareKind::kMemoryPool, descriptor, &token);
  if (result != CUDA_SUCCESS) return result;
  Identity identity;
  memcpy(identity.data(), &token, identity.size());
  uint64_t digest;
  memcpy(&digest, identity.data() + 8, sizeof(digest));
  for (uint16_t device = 0; device < session().devices().size(); ++device) {
    if (DigestOf(session().device(device).uuid) == digest)
      return ImportPool(device, identity, pool_out);
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  Allocation allocation;
  if (!pointers().Find(ptr, &allocation) || allocation.kind != MemoryKind::kDevice ||
      allocation.address != ptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  MemoryPool* pool = memory_pools().Find(HandleKind::kMemoryPool, allocation.pool);
  if (pool == nullptr || !Exportable(*pool) || !pool->exported.load(std::memory_order_acquire))
    return CUDA_ERROR_INVALID_VALUE;
  ExportedPointer exported{};
  memcpy(exported.magic, kMagic, sizeof(kMagic));
  CUresult result = IdentityOf(*pool, &exported.pool);
  if (result != CUDA_SUCCESS) return result;
  wire::cuIpcGetMemHandle_Reply reply{};
  NoteSharedMemory();
  result = session().Call(Op::cuIpcGetMemHandle, allocation.device, allocation.context,
                          wire::cuIpcGetMemHandle{ptr}, &reply);
  if (result != CUDA_SUCCESS) return result;
  exported.memory = reply.token;
  memcpy(shareData_out, &exported, sizeof(exported));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool,
                                CUmemPoolPtrExportData* shareData) {
  Context* context;
  CUresult result = ContextForWork(&context);
  if (result != CUDA_SUCCESS) return result;
  MemoryPool* found = FindPool(pool);
  if (found == nullptr || !found->imported) return CUDA_ERROR_INVALID_VALUE;
  ExportedPointer exported;
  memcpy(&exported, shareData, sizeof(exported));
  if (memcmp(exported.magic, kMagic, sizeof(kMagic)) != 0 || exported.pool != found->identity)
    return CUDA_ERROR_INVALID_VALUE;
  wire::cuIpcOpenMemHandle_v2 args{};
  args.token = exported.memory;
  args.context = context->id.load(std::memory_order_acquire);
  wire::cuIpcOpenMemHandle_v2_Reply reply{};
  NoteSharedMemory();
  result = session().Call(Op::cuIpcOpenMemHandle_v2, context->device, args.context, args, &reply);
  if (result != CUDA_SUCCESS) return result;
  Allocation allocation;
  allocation.kind = MemoryKind::kOpened;
  allocation.device = static_cast<uint16_t>(reply.device);
  allocation.context = args.context;
  allocation.context_handle = context->handle.load(std::memory_order_relaxed);
  allocation.address = allocation.gpu_address = reply.address;
  allocation.bytes = reply.bytes;
  allocation.pool = found->handle;
  // An allocation that was imported before has only one entry.
  if (reply.device >= session().devices().size() || reply.device != found->device ||
      !pointers().AddUnlessOverlapping(allocation)) {
    wire::cuIpcCloseMemHandle_Reply closed{};
    session().Call(Op::cuIpcCloseMemHandle, context->device, args.context,
                   wire::cuIpcCloseMemHandle{reply.address}, &closed);
    return CUDA_ERROR_INVALID_VALUE;
  }
  NotePoolAllocation(*found, reply.bytes);
  *ptr_out = reply.address;
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim::api
