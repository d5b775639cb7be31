#include "server/session/ipc_memory.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/quota.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/session/peer_access.h"
#include "server/session/session_device.h"

namespace detshare {
namespace {

constexpr int kPeerAccessUnsupported = 217;  // CUDA_ERROR_PEER_ACCESS_UNSUPPORTED

// Ties the quota charge to the memory: the tenant is charged as long as any process has the memory.
std::shared_ptr<PhysicalMemory> WithCharge(std::shared_ptr<PhysicalMemory> memory,
                                           std::shared_ptr<const QuotaCharge> charge) {
  using Both = std::pair<std::shared_ptr<const QuotaCharge>, std::shared_ptr<PhysicalMemory>>;
  PhysicalMemory* const plain = memory.get();
  return {std::make_shared<Both>(std::move(charge), std::move(memory)), plain};
}

}  // namespace

absl::StatusOr<ShareTokenValue> IpcMemory::Show(SessionDevice& device, DeviceAddress address) {
  const std::optional<DeviceMemory::Allocation> allocation = device.memory->Find(address);
  if (!allocation) return CudaError(kCudaErrorInvalidValue, "not an allocation of this session");
  if (const auto known = shown_.find(allocation->address); known != shown_.end())
    return known->second.token;
  if (shown_.size() >= kLimit)
    return CudaError(kCudaErrorOutOfMemory, "too many allocations are shown");
  DETSHARE_ASSIGN_OR_RETURN(PhysicalRange behind, device.space->Behind(allocation->address));
  std::shared_ptr<PhysicalMemory> memory =
      WithCharge(std::move(behind.memory), device.memory->ChargeOf(allocation->address));
  const absl::StatusOr<ShareTokenValue> token = objects_.Export(
      user_, {memory, device.device, allocation->address - behind.begin, allocation->bytes});
  if (!token.ok()) return token;
  // No other session knows the token yet, so the memory could still move.
  device.memory->KeepInPlace(allocation->address);
  shown_[allocation->address] = {*token, std::move(memory)};
  return token;
}

absl::Status IpcMemory::Allow(SessionDevice& device, Mapping& mapping) {
  SessionDevice& owner = *mapping.opened.device;
  if (&device == &owner ||
      std::find(mapping.users.begin(), mapping.users.end(), &device) != mapping.users.end()) {
    return absl::OkStatus();
  }
  DETSHARE_RETURN_IF_ERROR(
      device.space->SetAccess(mapping.begin, mapping.bytes, MemoryAccess::kReadWrite));
  owner.coroutine->AddUser(*device.coroutine);
  mapping.users.push_back(&device);
  return absl::OkStatus();
}

Task<absl::StatusOr<IpcMemory::Opened>> IpcMemory::Open(SessionDevice& device, ContextId context,
                                                        ShareTokenValue token) {
  for (const auto& [address, shown] : shown_) {
    if (shown.token == token)
      co_return CudaError(kCudaErrorInvalidContext, "the memory belongs to this process");
  }
  DETSHARE_CO_ASSIGN_OR_RETURN(const SharedMemory shared, objects_.Import(user_, token));
  if (!Reaches(*device.device, *shared.device))
    co_return CudaError(kPeerAccessUnsupported, "the device does not reach the memory");
  for (auto& [address, mapping] : mappings_) {
    if (mapping.token != token || mapping.closing) continue;
    DETSHARE_CO_RETURN_IF_ERROR(Allow(device, mapping));
    ++mapping.opens;
    co_return mapping.opened;
  }
  if (mappings_.size() >= kLimit)
    co_return CudaError(kCudaErrorOutOfMemory, "too many mappings are open");

  const auto home = std::find_if(devices_.begin(), devices_.end(), [&](const SessionDevice& other) {
    return other.device == shared.device;
  });
  SessionDevice& owner = home != devices_.end() ? *home : device;
  Mapping mapping;
  mapping.token = token;
  mapping.context = context;
  mapping.bytes = shared.memory->bytes();
  DETSHARE_CO_ASSIGN_OR_RETURN(const DeviceAddress begin,
                               co_await owner.memory->Reserve(mapping.bytes, 0, 0));
  mapping.begin = begin;
  mapping.opened = {begin + shared.offset, shared.bytes, &owner};
  absl::Status status = owner.space->MapPhysical(begin, mapping.bytes, shared.memory);
  if (!status.ok()) {
    owner.memory->FreeReservation(begin, mapping.bytes);
    co_return status;
  }
  status = owner.space->SetAccess(begin, mapping.bytes, MemoryAccess::kReadWrite);
  if (status.ok()) status = Allow(device, mapping);
  if (!status.ok()) {
    Unmap(mapping);
    co_return status;
  }
  const Opened opened = mapping.opened;
  mappings_.emplace(opened.address, std::move(mapping));
  co_return opened;
}

Task<absl::StatusOr<bool>> IpcMemory::Close(DeviceAddress address) {
  const auto found = mappings_.find(address);
  if (found == mappings_.end() || found->second.closing)
    co_return CudaError(kCudaErrorInvalidValue, "not memory that an IPC handle opened");
  if (--found->second.opens > 0) co_return true;
  found->second.closing = true;
  const absl::Status idle = co_await found->second.opened.device->coroutine->IdleForMemory();
  // The mapping stays until the session ends, because lost work may still use it.
  if (!idle.ok()) co_return idle;
  const auto still = mappings_.find(address);
  if (still == mappings_.end()) co_return false;
  Unmap(still->second);
  mappings_.erase(still);
  co_return false;
}

void IpcMemory::EndContext(ContextId context) {
  std::erase_if(shown_, [this](const auto& item) {
    return std::none_of(devices_.begin(), devices_.end(), [&](const SessionDevice& device) {
      return device.memory->Find(item.first).has_value();
    });
  });
  std::erase_if(mappings_, [&](const auto& item) {
    if (item.second.context != context || item.second.closing) return false;
    Unmap(item.second);
    return true;
  });
}

void IpcMemory::Unmap(const Mapping& mapping) {
  for (SessionDevice* user : mapping.users)
    user->space->SetAccess(mapping.begin, mapping.bytes, MemoryAccess::kNone).IgnoreError();
  SessionDevice& owner = *mapping.opened.device;
  // On a lost device the unmap fails. The address space then releases the mapping when it ends.
  if (owner.space->UnmapPhysical(mapping.begin, mapping.bytes).ok())
    owner.memory->FreeReservation(mapping.begin, mapping.bytes);
}

}  // namespace detshare
