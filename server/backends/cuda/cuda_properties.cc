#include "server/backends/cuda/cuda_properties.h"

#include <malloc.h>

#include <cstring>

namespace detshare::cuda {
namespace {

// Reads the SM topology from a table of functions that NVIDIA does not document. Entry 4 returns
// two allocated arrays with one byte for each TPC: its GPC, and its index in the GPC. Entry 13
// frees them. After any unexpected result the topology stays unknown.
void ReadTopology(CudaContext& context, DeviceProperties& properties) {
  constexpr unsigned char kTable[16] = {0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45,
                                        0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca};
  CUuuid uuid;
  std::memcpy(uuid.bytes, kTable, sizeof kTable);
  const void* table = nullptr;
  if (context.api.cuGetExportTable(&table, &uuid) != CUDA_SUCCESS || table == nullptr) return;
  const auto* entries = static_cast<void* const*>(table);
  if (reinterpret_cast<uintptr_t>(entries[0]) < 14 * sizeof(void*)) return;
  using Get = CUresult (*)(uint8_t**, uint8_t**);
  using Free = void (*)(uint8_t*, uint8_t*);
  const auto get = reinterpret_cast<Get>(entries[4]);
  const auto free_arrays = reinterpret_cast<Free>(entries[13]);
  if (get == nullptr || free_arrays == nullptr) return;
  uint8_t* gpc = nullptr;
  uint8_t* index = nullptr;
  if (get(&gpc, &index) != CUDA_SUCCESS || gpc == nullptr || index == nullptr) return;
  const size_t tpcs = static_cast<size_t>(properties.sm_count) / 2;
  if (malloc_usable_size(gpc) >= tpcs && malloc_usable_size(index) >= tpcs) {
    properties.tpc_gpc.assign(gpc, gpc + tpcs);
    properties.tpc_index.assign(index, index + tpcs);
  }
  free_arrays(gpc, index);
}

}  // namespace

absl::StatusOr<DeviceProperties> ReadProperties(CudaContext& context) {
  const DriverApi& api = context.api;
  context.Enter();
  DeviceProperties properties;
  char name[256] = {};
  absl::Status status =
      context.Check(api.cuDeviceGetName(name, sizeof name - 1, context.device), "cuDeviceGetName");
  properties.name = name;
  CUuuid uuid{};
  status.Update(context.Check(api.cuDeviceGetUuid(&uuid, context.device), "cuDeviceGetUuid"));
  std::memcpy(properties.uuid.data(), uuid.bytes, properties.uuid.size());
  size_t bytes = 0;
  status.Update(context.Check(api.cuDeviceTotalMem(&bytes, context.device), "cuDeviceTotalMem"));
  properties.total_memory = bytes;
  status.Update(
      context.Check(api.cuDriverGetVersion(&properties.driver_version), "cuDriverGetVersion"));
  status.Update(context.Check(api.cuCtxGetStreamPriorityRange(&properties.least_stream_priority,
                                                              &properties.greatest_stream_priority),
                              "cuCtxGetStreamPriorityRange"));

  properties.blocks_by_priority = true;

  CUmemAllocationProp allocation{};
  allocation.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  allocation.location.id = context.device;
  allocation.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t granularity = 0;
  status.Update(context.Check(api.cuMemGetAllocationGranularity(&granularity, &allocation,
                                                                CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                              "cuMemGetAllocationGranularity"));
  properties.memory_granularity = granularity;
  if (!status.ok()) return status;

  for (int attribute = 1; attribute < CU_DEVICE_ATTRIBUTE_MAX; ++attribute) {
    int value = 0;
    if (api.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute),
                                 context.device) == CUDA_SUCCESS) {
      properties.attributes[attribute] = value;
    }
  }
  // Registered memory has another address in the client.
  properties.attributes[CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM] = 0;
  properties.sm_count = properties.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];

  properties.limits.resize(CU_LIMIT_MAX);
  for (int limit = 0; limit < CU_LIMIT_MAX; ++limit) {
    size_t value = 0;
    if (api.cuCtxGetLimit(&value, static_cast<CUlimit>(limit)) == CUDA_SUCCESS) {
      properties.limits[limit] = value;
    }
  }
  ReadTopology(context, properties);
  return properties;
}

}  // namespace detshare::cuda
