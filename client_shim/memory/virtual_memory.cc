#include "client_shim/memory/virtual_memory.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "client_shim/base/handle_table.h"
#include "client_shim/memory/shared_memory.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/transport/session.h"

namespace detshare::shim {
namespace {

struct Physical {
  uint64_t handle = 0;
  uint32_t index = 0;
  uint16_t device = 0;
  wire::PhysicalId id = 0;
  uint64_t bytes = 0;
  CUmemAllocationProp properties{};
  uint32_t references = 0;
  uint32_t mappings = 0;
};

struct Mapping {
  uint64_t bytes = 0;
  Physical* memory = nullptr;
};

struct State {
  std::mutex mutex;  // guards the rest, and the fields of the handles' objects
  HandleTable<Physical> physical;
  std::map<uint64_t, uint64_t> reserved;  // address -> bytes
  std::map<uint64_t, Mapping> mapped;     // by address
};

State& state() {
  static State* const all = new State;
  return *all;
}

// Needs the lock. Null if this is no handle. The memory of a mapping may have no references.
Physical* FindHeld(CUmemGenericAllocationHandle handle) {
  Physical* found = state().physical.Find(HandleKind::kPhysicalMemory, handle);
  return found != nullptr && found->references != 0 ? found : nullptr;
}

CUresult Publish(const Physical& made, CUmemGenericAllocationHandle* handle) {
  uint32_t index;
  Physical* memory = state().physical.Reserve(&index);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *memory = made;
  memory->index = index;
  memory->references = 1;
  *handle = memory->handle = state().physical.Publish(HandleKind::kPhysicalMemory, index);
  return CUDA_SUCCESS;
}

// Needs the lock. Tells the daemon when the memory has neither references nor mappings.
CUresult EndIfUnused(Physical& memory) {
  if (memory.references != 0 || memory.mappings != 0) return CUDA_SUCCESS;
  const wire::cuMemRelease args{memory.id, 0};
  const uint16_t device = memory.device;
  state().physical.Retire(memory.handle);
  state().physical.Recycle(memory.index);
  return session().CallUnordered(Op::cuMemRelease, device, 0, args);
}

// Needs the lock. The mappings that make up exactly this range; empty if none do.
std::vector<std::map<uint64_t, Mapping>::iterator> Exactly(uint64_t address, uint64_t bytes) {
  std::vector<std::map<uint64_t, Mapping>::iterator> parts;
  for (auto part = state().mapped.find(address); bytes != 0; ++part) {
    if (part == state().mapped.end() || part->first != address || part->second.bytes > bytes)
      return {};
    parts.push_back(part);
    address += part->second.bytes;
    bytes -= part->second.bytes;
  }
  return parts;
}

// Needs the lock. Null if the address lies in no reserved range.
const std::pair<const uint64_t, uint64_t>* ReservationOf(uint64_t address) {
  const auto next = state().reserved.upper_bound(address);
  if (next == state().reserved.begin()) return nullptr;
  const auto range = std::prev(next);
  return address - range->first < range->second ? &*range : nullptr;
}

// Needs the lock. Whether the range begins in a reserved range and overlaps none of its mappings.
// The driver does not mind where the range ends.
bool NothingMapped(uint64_t address, uint64_t bytes) {
  const auto* const reserved = ReservationOf(address);
  if (reserved == nullptr || address + bytes < address) return false;
  const uint64_t end = std::min(address + bytes, reserved->first + reserved->second);
  const auto next = state().mapped.lower_bound(end);
  return next == state().mapped.begin() ||
         std::prev(next)->first + std::prev(next)->second.bytes <= address;
}

// The device in whose window a range should lie: that of the wanted address, else that of the
// current context.
uint16_t DeviceForRange(uint64_t wanted) {
  for (size_t i = 0; i < session().devices().size(); ++i) {
    if (session().devices()[i].Holds(wanted)) return static_cast<uint16_t>(i);
  }
  Context* context;
  return CurrentContext(&context) == CUDA_SUCCESS ? context->device : 0;
}

}  // namespace

CUresult CreatePhysicalMemory(uint16_t device, uint64_t bytes,
                              const CUmemAllocationProp& properties,
                              CUmemGenericAllocationHandle* handle) {
  wire::cuMemCreate_Reply reply{};
  CUresult result =
      session().CallUnordered(Op::cuMemCreate, device, 0, wire::cuMemCreate{bytes}, &reply);
  if (result != CUDA_SUCCESS) return result;
  Physical made;
  made.device = device;
  made.id = reply.memory;
  made.bytes = bytes;
  made.properties = properties;
  const std::lock_guard lock(state().mutex);
  result = Publish(made, handle);
  if (result != CUDA_SUCCESS)
    session().CallUnordered(Op::cuMemRelease, device, 0, wire::cuMemRelease{reply.memory, 0});
  return result;
}

CUresult ReleasePhysicalMemory(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(state().mutex);
  Physical* memory = FindHeld(handle);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  --memory->references;
  return EndIfUnused(*memory);
}

CUresult RetainPhysicalMemory(uint64_t address, CUmemGenericAllocationHandle* handle) {
  const std::lock_guard lock(state().mutex);
  const auto next = state().mapped.upper_bound(address);
  if (next == state().mapped.begin() ||
      address - std::prev(next)->first >= std::prev(next)->second.bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Physical& memory = *std::prev(next)->second.memory;
  ++memory.references;
  *handle = memory.handle;
  return CUDA_SUCCESS;
}

CUresult GetPhysicalProperties(CUmemGenericAllocationHandle handle,
                               CUmemAllocationProp* properties) {
  const std::lock_guard lock(state().mutex);
  const Physical* memory = FindHeld(handle);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = memory->properties;
  return CUDA_SUCCESS;
}

CUresult ExportPhysicalMemory(CUmemGenericAllocationHandle handle, wire::ShareToken* token) {
  const std::lock_guard lock(state().mutex);
  const Physical* memory = FindHeld(handle);
  if (memory == nullptr ||
      (memory->properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  wire::cuMemExportToShareableHandle_Reply reply{};
  NoteSharedMemory();
  const CUresult result = session().Call(Op::cuMemExportToShareableHandle, memory->device, 0,
                                         wire::cuMemExportToShareableHandle{memory->id, 0}, &reply);
  if (result == CUDA_SUCCESS) *token = reply.token;
  return result;
}

CUresult ImportPhysicalMemory(const wire::ShareToken& token, CUmemGenericAllocationHandle* handle) {
  wire::cuMemImportFromShareableHandle_Reply reply{};
  NoteSharedMemory();
  CUresult result = session().Call(Op::cuMemImportFromShareableHandle, 0, 0,
                                   wire::cuMemImportFromShareableHandle{token}, &reply);
  if (result != CUDA_SUCCESS) return result;
  Physical made;
  made.device = static_cast<uint16_t>(reply.device);
  made.id = reply.memory;
  made.bytes = reply.bytes;
  made.properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  made.properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  made.properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  made.properties.location.id = static_cast<int>(reply.device);
  const std::lock_guard lock(state().mutex);
  result = Publish(made, handle);
  if (result != CUDA_SUCCESS)
    session().CallUnordered(Op::cuMemRelease, made.device, 0, wire::cuMemRelease{reply.memory, 0});
  return result;
}

CUresult ReserveAddresses(uint64_t bytes, uint64_t alignment, uint64_t wanted, uint64_t* address) {
  wire::cuMemAddressReserve_Reply reply{};
  const CUresult result =
      session().CallUnordered(Op::cuMemAddressReserve, DeviceForRange(wanted), 0,
                              wire::cuMemAddressReserve{bytes, alignment, wanted}, &reply);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state().mutex);
  state().reserved[reply.address] = bytes;
  *address = reply.address;
  return CUDA_SUCCESS;
}

CUresult FreeAddresses(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(state().mutex);
  const auto range = state().reserved.find(address);
  if (range == state().reserved.end() || range->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = session().CallUnordered(Op::cuMemAddressFree, DeviceForRange(address), 0,
                                                  wire::cuMemAddressFree{address, bytes});
  if (result == CUDA_SUCCESS) state().reserved.erase(range);
  return result;
}

CUresult MapPhysicalMemory(uint64_t address, uint64_t bytes, uint64_t offset,
                           CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(state().mutex);
  Physical* memory = FindHeld(handle);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The driver says this before it looks at the address.
  if (offset != 0 || bytes != memory->bytes) return CUDA_ERROR_NOT_SUPPORTED;
  if (address % wire::kPhysicalUnit != 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = session().CallUnordered(Op::cuMemMap, memory->device, 0,
                                                  wire::cuMemMap{address, bytes, memory->id, 0});
  if (result != CUDA_SUCCESS) return result;
  ++memory->mappings;
  state().mapped[address] = {bytes, memory};
  Allocation allocation;
  allocation.kind = MemoryKind::kVirtual;
  allocation.device = memory->device;
  allocation.address = allocation.gpu_address = address;
  allocation.bytes = bytes;
  allocation.handle_types = memory->properties.requestedHandleTypes;
  pointers().Add(allocation);
  return CUDA_SUCCESS;
}

CUresult UnmapPhysicalMemory(uint64_t address, uint64_t bytes) {
  {
    const std::lock_guard lock(state().mutex);
    if (NothingMapped(address, bytes)) return CUDA_SUCCESS;
    if (Exactly(address, bytes).empty()) return CUDA_ERROR_INVALID_VALUE;
  }
  // Waits for earlier work, so the lock is not held. If two threads unmap one range, the daemon
  // refuses one of them.
  CUresult result = session().Call(Op::cuMemUnmap, 0, 0, wire::cuMemUnmap{address, bytes});
  session().DrainOutput();
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state().mutex);
  for (const auto part : Exactly(address, bytes)) {
    Allocation gone;
    pointers().Take(part->first, MemoryKind::kVirtual, &gone);
    Physical& memory = *part->second.memory;
    state().mapped.erase(part);
    --memory.mappings;
    if (const CUresult ended = EndIfUnused(memory); ended != CUDA_SUCCESS) result = ended;
  }
  return result;
}

CUresult SetMemoryAccess(uint64_t address, uint64_t bytes,
                         std::span<const CUmemAccessDesc> access) {
  const std::lock_guard lock(state().mutex);
  const auto parts = Exactly(address, bytes);
  if (parts.empty()) return CUDA_ERROR_INVALID_VALUE;
  wire::cuMemSetAccess args{address, bytes, 0, 0};
  for (const CUmemAccessDesc& one : access) {
    // The host has no access to device memory.
    if (one.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    const int shift = 2 * one.location.id;
    args.devices |= uint32_t{1} << one.location.id;
    args.access = (args.access & ~(uint32_t{3} << shift)) | (uint32_t{one.flags} << shift);
  }
  const CUresult result = session().CallUnordered(Op::cuMemSetAccess, 0, 0, args);
  if (result != CUDA_SUCCESS) return result;
  uint32_t changed = 0;
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    if ((args.devices >> i & 1) != 0) changed |= uint32_t{3} << (2 * i);
  }
  for (const auto part : parts) pointers().SetAccess(part->first, changed, args.access);
  return result;
}

CUresult GetMemoryAccess(uint64_t address, uint16_t device, CUmemAccess_flags* flags) {
  *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  Allocation allocation;
  if (!pointers().Find(address, &allocation) || allocation.kind != MemoryKind::kVirtual)
    return CUDA_ERROR_INVALID_VALUE;
  *flags = static_cast<CUmemAccess_flags>(allocation.AccessOf(device));
  return CUDA_SUCCESS;
}

CUresult GetOwnersAccess(uint64_t address, CUmemAccess_flags* flags) {
  Allocation allocation;
  const bool found = pointers().Find(address, &allocation);
  return GetMemoryAccess(address, found ? allocation.device : 0, flags);
}

bool FindReservation(uint64_t address, uint64_t* start, uint64_t* bytes) {
  const std::lock_guard lock(state().mutex);
  const auto* const range = ReservationOf(address);
  if (range == nullptr) return false;
  *start = range->first;
  *bytes = range->second;
  return true;
}

}  // namespace detshare::shim
