// Devices. The session's grant has all values.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "client_shim/transport/session.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

// "0000:5D:00.0" and its terminator.
constexpr int kPciBusIdBytes = 13;

const DeviceInfo* Find(CUdevice device) {
  const auto& devices = session().devices();
  return device >= 0 && static_cast<size_t>(device) < devices.size() ? &devices[device] : nullptr;
}

struct PciAddress {
  unsigned int domain = 0, bus = 0, device = 0, function = 0;
};

// Reads "domain:bus:device.function", "domain:bus:device" or "bus:device.function", in hexadecimal.
// Ignores the rest of the text.
bool ParsePciAddress(const char* text, PciAddress* address) {
  const int found = sscanf(text, "%x:%x:%x.%x", &address->domain, &address->bus, &address->device,
                           &address->function);
  if (found >= 3) return true;
  address->domain = 0;
  return sscanf(text, "%x:%x.%x", &address->bus, &address->device, &address->function) == 3;
}

}  // namespace

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (Find(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = static_cast<int>(session().devices().size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  const DeviceInfo* device = Find(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (len <= 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t bytes = std::min<size_t>(device->name.size(), len - 1);
  memcpy(name, device->name.data(), bytes);
  name[bytes] = '\0';
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  const DeviceInfo* device = Find(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *uuid = device->uuid;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) { return api::cuDeviceGetUuid(uuid, dev); }

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  *bytes = 0;  // NVIDIA's driver writes 0 on errors, too.
  const DeviceInfo* device = Find(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = device->total_memory;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  const DeviceInfo* device = Find(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  // A device does not have an attribute that the daemon does not mention.
  *pi = device->attribute(attrib);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType type, CUdevice dev) {
  if (Find(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *pi = 0;  // as natively, unless the process is a client of MPS
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  const DeviceInfo* device = Find(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  prop->maxThreadsPerBlock = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  prop->maxThreadsDim[0] = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  prop->maxThreadsDim[1] = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  prop->maxThreadsDim[2] = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  prop->maxGridSize[0] = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  prop->maxGridSize[1] = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  prop->maxGridSize[2] = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  prop->sharedMemPerBlock = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  prop->totalConstantMemory = device->attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  prop->SIMDWidth = device->attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  prop->memPitch = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  prop->regsPerBlock = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  prop->clockRate = device->attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  prop->textureAlign = device->attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  const DeviceInfo* device = Find(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *major = device->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  *minor = device->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  PciAddress address;
  if (!ParsePciAddress(pciBusId, &address)) return CUDA_ERROR_INVALID_VALUE;
  const auto& devices = session().devices();
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto is = [&](CUdevice_attribute attribute, unsigned int value) {
      return static_cast<unsigned int>(devices[i].attribute(attribute)) == value;
    };
    if (address.function == 0 && is(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, address.domain) &&
        is(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, address.bus) &&
        is(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, address.device)) {
      *dev = static_cast<CUdevice>(i);
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  const DeviceInfo* device = Find(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (len <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(pciBusId, len, "%04X:%02X:%02X.0", device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
           device->attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
           device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
  return len >= kPciBusIdBytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace detshare::shim::api
