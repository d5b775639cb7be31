// Virtual memory management as the shim holds it: handles of physical memory, reserved ranges, and
// what is mapped where. The daemon checks everything again; what is here answers questions.
#pragma once

#include <cstdint>
#include <span>

#include "client_shim/memory/pointer_map.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/virtual_memory.h"

namespace detshare::shim {

// Physical memory of that device in whole units; `properties` are those of the request.
CUresult CreatePhysicalMemory(uint16_t device, uint64_t bytes,
                              const CUmemAllocationProp& properties,
                              CUmemGenericAllocationHandle* handle);
// One reference less; the last one that is neither held nor mapped ends the memory.
CUresult ReleasePhysicalMemory(CUmemGenericAllocationHandle handle);
// The handle of what is mapped at `address`, with one reference more.
CUresult RetainPhysicalMemory(uint64_t address, CUmemGenericAllocationHandle* handle);
CUresult GetPhysicalProperties(CUmemGenericAllocationHandle handle,
                               CUmemAllocationProp* properties);

// A token that other processes can import, and the way back.
CUresult ExportPhysicalMemory(CUmemGenericAllocationHandle handle, wire::ShareToken* token);
CUresult ImportPhysicalMemory(const wire::ShareToken& token, CUmemGenericAllocationHandle* handle);

CUresult ReserveAddresses(uint64_t bytes, uint64_t alignment, uint64_t wanted, uint64_t* address);
CUresult FreeAddresses(uint64_t address, uint64_t bytes);

CUresult MapPhysicalMemory(uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle handle);
CUresult UnmapPhysicalMemory(uint64_t address, uint64_t bytes);
// The last one for a device counts.
CUresult SetMemoryAccess(uint64_t address, uint64_t bytes, std::span<const CUmemAccessDesc> access);
// Of the mapping that holds `address`.
CUresult GetMemoryAccess(uint64_t address, uint16_t device, CUmemAccess_flags* flags);

}  // namespace detshare::shim
