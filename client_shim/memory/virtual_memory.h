// The shim's side of virtual memory management: handles of physical memory, reserved ranges, and
// mappings. The shim uses them to reply to queries. The daemon checks every call again. Any thread.
#pragma once

#include <cstdint>
#include <span>

#include "client_shim/memory/pointer_map.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/virtual_memory.h"

namespace detshare::shim {

// Creates physical memory of the device, of `bytes` in whole granules. `properties` are the
// program's and are kept for queries.
CUresult CreatePhysicalMemory(uint16_t device, uint64_t bytes,
                              const CUmemAllocationProp& properties,
                              CUmemGenericAllocationHandle* handle);
// Removes a reference. The memory ends when it has neither references nor mappings.
// CUDA_ERROR_INVALID_VALUE: no such handle.
CUresult ReleasePhysicalMemory(CUmemGenericAllocationHandle handle);
// The handle of the memory that is mapped at `address`. Adds a reference. CUDA_ERROR_INVALID_VALUE:
// nothing is mapped there.
CUresult RetainPhysicalMemory(uint64_t address, CUmemGenericAllocationHandle* handle);
CUresult GetPhysicalProperties(CUmemGenericAllocationHandle handle,
                               CUmemAllocationProp* properties);

// Make a token that other processes can import, and a handle from such a token.
// CUDA_ERROR_INVALID_VALUE: memory that was created without
// CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
CUresult ExportPhysicalMemory(CUmemGenericAllocationHandle handle, wire::ShareToken* token);
CUresult ImportPhysicalMemory(const wire::ShareToken& token, CUmemGenericAllocationHandle* handle);

// Reserve and free ranges of addresses. `wanted`: the address that the program wants; 0: any. Only
// a whole reserved range can be freed.
CUresult ReserveAddresses(uint64_t bytes, uint64_t alignment, uint64_t wanted, uint64_t* address);
CUresult FreeAddresses(uint64_t address, uint64_t bytes);

// Map and unmap memory. Only all of a handle's memory can be mapped. Unmapping waits for all earlier
// work. Only a range that is made up of whole mappings can be unmapped, or one of a reserved range
// in which nothing is mapped.
CUresult MapPhysicalMemory(uint64_t address, uint64_t bytes, uint64_t offset,
                           CUmemGenericAllocationHandle handle);
CUresult UnmapPhysicalMemory(uint64_t address, uint64_t bytes);
// Sets the access of devices to whole mappings. Of several entries for one device the last counts.
// CUDA_ERROR_NOT_SUPPORTED: an entry for the host.
CUresult SetMemoryAccess(uint64_t address, uint64_t bytes, std::span<const CUmemAccessDesc> access);
// The access to the mapping that holds `address`. With an error `*flags` is no access.
CUresult GetMemoryAccess(uint64_t address, uint16_t device, CUmemAccess_flags* flags);
// The access of the device whose memory the mapping that holds `address` has.
CUresult GetOwnersAccess(uint64_t address, CUmemAccess_flags* flags);
// Finds the reserved range that holds `address`.
bool FindReservation(uint64_t address, uint64_t* start, uint64_t* bytes);

}  // namespace detshare::shim
