// The devices: their handles, identities and how they are divided.
#include "client_shim/nvml/devices.h"

#include <strings.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "client_shim/nvml/ask.h"
#include "client_shim/nvml/export.h"
#include "proto/device_uuid.h"

namespace detshare::nvml {
namespace {

constexpr unsigned kNoMig = 0;

nvmlReturn_t Device(nvmlDevice_t device, Snapshot* snapshot, const proto::VisibleDevice** found,
                    bool pointers) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  return pointers ? FindDevice(device, snapshot, found) : NVML_ERROR_INVALID_ARGUMENT;
}

// Finds the first device for which `is` holds.
template <typename Is>
nvmlReturn_t HandleWhere(nvmlDevice_t* device, const Is& is) {
  Snapshot snapshot;
  if (const nvmlReturn_t result = GetSnapshot(&snapshot); result != NVML_SUCCESS) return result;
  for (int i = 0; i < snapshot->devices_size(); ++i) {
    if (!is(snapshot->devices(i))) continue;
    *device = HandleOf(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

// All versions of the struct are the same, except for the length of the legacy name.
nvmlReturn_t PciInfo(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  if (const nvmlReturn_t result = Device(device, &snapshot, &found, true); result != NVML_SUCCESS)
    return result;
  *pci = {};
  // The ids of the chip and the board, if the host knows them.
  (void)AskPlain("nvmlDeviceGetPciInfo_v3", Age::kFixed, Subject(device), {}, {Out(pci)});
  pci->domain = found->pci_domain();
  pci->bus = found->pci_bus();
  pci->device = found->pci_device();
  snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0", pci->domain & 0xFFFF,
           pci->bus & 0xFF, pci->device & 0xFF);
  snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xFF,
           pci->device & 0xFF);
  return NVML_SUCCESS;
}

// Copies the first fields of the struct. Old versions of the struct end after them.
nvmlReturn_t PciInfoPrefix(nvmlDevice_t device, void* pci, size_t bytes) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlPciInfo_t whole;
  if (const nvmlReturn_t result = PciInfo(device, &whole); result != NVML_SUCCESS) return result;
  memcpy(pci, &whole, bytes);
  return NVML_SUCCESS;
}

}  // namespace

// ---- handles

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* deviceCount) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (deviceCount == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  Snapshot snapshot;
  if (const nvmlReturn_t result = GetSnapshot(&snapshot); result != NVML_SUCCESS) return result;
  *deviceCount = static_cast<unsigned int>(snapshot->devices_size());
  return NVML_SUCCESS;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int* deviceCount) {
  return nvmlDeviceGetCount_v2(deviceCount);
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index,
                                                           nvmlDevice_t* device) {
  unsigned int count = 0;
  if (const nvmlReturn_t result = nvmlDeviceGetCount_v2(&count); result != NVML_SUCCESS)
    return result;
  if (device == nullptr || index >= count) return NVML_ERROR_INVALID_ARGUMENT;
  *device = HandleOf(static_cast<int>(index));
  return NVML_SUCCESS;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (uuid == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return HandleWhere(device, [uuid](const auto& candidate) {
    return strcasecmp(FormatUuid(candidate.uuid()).c_str(), uuid) == 0;
  });
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t* uuid,
                                                        nvmlDevice_t* device) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (uuid == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (uuid->version != NvmlStructVersion(sizeof(*uuid), 1))
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  constexpr unsigned kText = 1, kBinary = 2;
  if (uuid->type == kText) {
    const std::string text(uuid->value.str, strnlen(uuid->value.str, sizeof(uuid->value.str)));
    return nvmlDeviceGetHandleByUUID(text.c_str(), device);
  }
  if (uuid->type != kBinary) return NVML_ERROR_INVALID_ARGUMENT;
  return HandleWhere(device, [uuid](const auto& candidate) {
    return memcmp(candidate.uuid().data(), uuid->value.bytes, sizeof(uuid->value.bytes)) == 0;
  });
}

// Accepts "domain:bus:device.function" and "bus:device.function".
DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* pciBusId,
                                                              nvmlDevice_t* device) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (pciBusId == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  int length = 0;
  const auto is_whole = [&] { return length > 0 && pciBusId[length] == '\0'; };
  if (sscanf(pciBusId, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &length) != 4 ||
      !is_whole()) {
    domain = length = 0;
    if (sscanf(pciBusId, "%x:%x.%x%n", &bus, &slot, &function, &length) != 3 || !is_whole())
      return NVML_ERROR_INVALID_ARGUMENT;
  }
  return HandleWhere(device, [&](const auto& candidate) {
    return candidate.pci_domain() == domain && candidate.pci_bus() == bus &&
           candidate.pci_device() == slot;
  });
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* pciBusId,
                                                           nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  const nvmlReturn_t result = Device(device, &snapshot, &found, index != nullptr);
  if (result == NVML_SUCCESS) *index = static_cast<unsigned int>(PositionOf(device));
  return result;
}

// ---- identity

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name,
                                               unsigned int length) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  const nvmlReturn_t result = Device(device, &snapshot, &found, name != nullptr);
  return result == NVML_SUCCESS ? CopyText(found->name(), name, length) : result;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid,
                                               unsigned int length) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  const nvmlReturn_t result = Device(device, &snapshot, &found, uuid != nullptr);
  return result == NVML_SUCCESS ? CopyText(FormatUuid(found->uuid()), uuid, length) : result;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return PciInfoPrefix(device, pci, sizeof(*pci));
}
// Fills the struct up to pciSubSystemId. The fields behind it are reserved.
DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, void* pci) {
  return PciInfoPrefix(device, pci, offsetof(nvmlPciInfo_t, busId));
}
// Fills the struct up to pciDeviceId.
DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, void* pci) {
  return PciInfoPrefix(device, pci, offsetof(nvmlPciInfo_t, pciSubSystemId));
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major,
                                                                int* minor) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  const nvmlReturn_t result =
      Device(device, &snapshot, &found, major != nullptr && minor != nullptr);
  if (result != NVML_SUCCESS) return result;
  *major = static_cast<int>(found->compute_major());
  *minor = static_cast<int>(found->compute_minor());
  return NVML_SUCCESS;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int* arch) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  if (const nvmlReturn_t result = Device(device, &snapshot, &found, arch != nullptr);
      result != NVML_SUCCESS)
    return result;
  // NVML's numbers, by compute capability. 10 is Blackwell.
  struct Architecture {
    unsigned from, number;
  };
  constexpr Architecture kArchitectures[] = {{100, 10}, {90, 9}, {89, 8},
                                             {80, 7},   {75, 6}, {70, 5}};
  constexpr unsigned kUnknown = 0xFFFFFFFF;
  const unsigned capability = found->compute_major() * 10 + found->compute_minor();
  *arch = kUnknown;
  for (const Architecture& architecture : kArchitectures) {
    if (capability < architecture.from) continue;
    *arch = architecture.number;
    break;
  }
  return NVML_SUCCESS;
}

// ---- how it is divided among tenants: the daemon divides it

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int* mode) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  constexpr unsigned kDefault = 0;  // any number of processes
  const nvmlReturn_t result = Device(device, &snapshot, &found, mode != nullptr);
  if (result == NVML_SUCCESS) *mode = kDefault;
  return result;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int* currentMode,
                                                  unsigned int* pendingMode) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  const nvmlReturn_t result =
      Device(device, &snapshot, &found, currentMode != nullptr && pendingMode != nullptr);
  if (result == NVML_SUCCESS) *currentMode = *pendingMode = kNoMig;
  return result;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device,
                                                            unsigned int* count) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  const nvmlReturn_t result = Device(device, &snapshot, &found, count != nullptr);
  if (result == NVML_SUCCESS) *count = kNoMig;
  return result;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int,
                                                                 nvmlDevice_t* migDevice) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  const nvmlReturn_t result = Device(device, &snapshot, &found, migDevice != nullptr);
  return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device,
                                                         unsigned int* isMigDevice) {
  Snapshot snapshot;
  const proto::VisibleDevice* found = nullptr;
  const nvmlReturn_t result = Device(device, &snapshot, &found, isMigDevice != nullptr);
  if (result == NVML_SUCCESS) *isMigDevice = kNoMig;
  return result;
}

DETSHARE_EXPORT nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2,
                                                   int* onSameBoard) {
  if (const nvmlReturn_t result = CheckInitialised(); result != NVML_SUCCESS) return result;
  if (onSameBoard == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned board1 = 0, board2 = 0;
  for (const auto& [device, board] : {std::pair(device1, &board1), std::pair(device2, &board2)}) {
    const nvmlReturn_t result =
        AskPlain("nvmlDeviceGetBoardId", Age::kFixed, Subject(device), {}, {Out(board)});
    if (result != NVML_SUCCESS) return result;
  }
  *onSameBoard = board1 == board2;
  return NVML_SUCCESS;
}

}  // namespace detshare::nvml
