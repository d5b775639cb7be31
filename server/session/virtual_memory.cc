#include "server/session/virtual_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/quota.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "proto/ring_abi.h"
#include "server/session/session_device.h"

namespace detshare {
namespace {

bool WholeGranules(DeviceAddress address, uint64_t bytes) {
  return bytes != 0 && (address | bytes) % kPhysicalGranule == 0 && address <= UINT64_MAX - bytes;
}

// Physical memory with its quota charge and the counter that includes its bytes.
struct Counted {
  Counted(std::shared_ptr<PhysicalMemory> memory, std::shared_ptr<std::atomic<uint64_t>> sum,
          QuotaCharge charge)
      : charge(std::move(charge)), memory(std::move(memory)), sum(std::move(sum)) {
    this->sum->fetch_add(this->memory->bytes(), std::memory_order_relaxed);
  }
  ~Counted() { sum->fetch_sub(memory->bytes(), std::memory_order_relaxed); }

  const QuotaCharge charge;
  const std::shared_ptr<PhysicalMemory> memory;
  const std::shared_ptr<std::atomic<uint64_t>> sum;
};

}  // namespace

VirtualMemory::VirtualMemory(std::vector<SessionDevice>& devices)
    : devices_(devices), made_(std::make_shared<std::atomic<uint64_t>>(0)) {}

// Removes the access of other devices, because address spaces are destroyed one after another. A
// space must not refer to a mapping of another space by then.
VirtualMemory::~VirtualMemory() {
  for (const auto& [address, mapping] : mappings_) {
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (&devices_[i] == mapping.owner || (mapping.accessible >> i & 1) == 0) continue;
      devices_[i].space->SetAccess(address, mapping.bytes, MemoryAccess::kNone).IgnoreError();
    }
  }
}

size_t VirtualMemory::IndexOf(const SessionDevice& device) const {
  return static_cast<size_t>(&device - devices_.data());
}

Task<absl::StatusOr<DeviceAddress>> VirtualMemory::Reserve(SessionDevice& device, uint64_t bytes,
                                                           uint64_t alignment,
                                                           DeviceAddress wanted) {
  if (bytes == 0 || bytes % kPageBytes != 0)
    co_return InvalidValue("the size is not a positive multiple of the page size");
  if (ranges_.size() >= kLimit)
    co_return CudaError(kCudaErrorOutOfMemory, "too many ranges of addresses");
  const absl::StatusOr<DeviceAddress> address =
      co_await device.memory->Reserve(bytes, alignment, wanted);
  if (address.ok()) ranges_[*address] = Range{bytes, &device};
  co_return address;
}

absl::Status VirtualMemory::FreeReservation(DeviceAddress address, uint64_t bytes) {
  const auto found = ranges_.find(address);
  if (found == ranges_.end() || found->second.bytes != bytes)
    return InvalidValue("not a reserved range of addresses");
  if (Overlaps(address, bytes)) return InvalidValue("memory is mapped in the range");
  found->second.owner->memory->FreeReservation(address, bytes);
  ranges_.erase(found);
  return absl::OkStatus();
}

Task<absl::StatusOr<VirtualMemory::Id>> VirtualMemory::Create(SessionDevice& device,
                                                              uint64_t bytes) {
  if (!WholeGranules(0, bytes))
    co_return InvalidValue("the size is not a positive multiple of the granule");
  if (named_.size() >= kLimit)
    co_return CudaError(kCudaErrorOutOfMemory, "too many pieces of physical memory");
  DETSHARE_CO_ASSIGN_OR_RETURN(QuotaCharge charge, device.memory->TakeQuota(bytes));
  std::unique_ptr<RoomTicket> ticket;
  absl::StatusOr<std::shared_ptr<PhysicalMemory>> memory =
      device.device->CreatePhysicalMemory(bytes);
  for (uint64_t attempt = 0; CudaResultOf(memory.status()) == kCudaErrorOutOfMemory; ++attempt) {
    const bool room = co_await device.memory->MakeRoom(bytes, attempt, &ticket);
    if (!room) break;
    memory = device.device->CreatePhysicalMemory(bytes);
  }
  if (!memory.ok()) co_return memory.status();
  PhysicalMemory* const made = memory->get();
  auto counted = std::make_shared<Counted>(*std::move(memory), made_, std::move(charge));
  co_return Adopt(std::shared_ptr<PhysicalMemory>(std::move(counted), made), device);
}

absl::StatusOr<VirtualMemory::Id> VirtualMemory::Adopt(std::shared_ptr<PhysicalMemory> memory,
                                                       SessionDevice& device) {
  if (named_.size() >= kLimit)
    return CudaError(kCudaErrorOutOfMemory, "too many pieces of physical memory");
  while (next_id_ == 0 || named_.contains(next_id_)) ++next_id_;
  const Id id = next_id_++;
  named_.emplace(id, Named{std::move(memory), &device});
  return id;
}

absl::Status VirtualMemory::Release(Id id) {
  return named_.erase(id) != 0 ? absl::OkStatus() : InvalidValue("no such physical memory");
}

const VirtualMemory::Named* VirtualMemory::Find(Id id) const {
  const auto found = named_.find(id);
  return found != named_.end() ? &found->second : nullptr;
}

VirtualMemory::Range* VirtualMemory::Containing(DeviceAddress address, uint64_t bytes) {
  const auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return nullptr;
  auto& [begin, range] = *std::prev(next);
  const uint64_t offset = address - begin;
  return offset <= range.bytes && bytes <= range.bytes - offset ? &range : nullptr;
}

bool VirtualMemory::Overlaps(DeviceAddress address, uint64_t bytes) const {
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first - address < bytes) return true;
  return next != mappings_.begin() &&
         address - std::prev(next)->first < std::prev(next)->second.bytes;
}

absl::StatusOr<std::vector<VirtualMemory::Mappings::iterator>> VirtualMemory::Exactly(
    DeviceAddress address, uint64_t bytes) {
  if (!WholeGranules(address, bytes)) return InvalidValue("not whole granules");
  std::vector<Mappings::iterator> parts;
  for (auto part = mappings_.find(address); bytes != 0; ++part) {
    if (part == mappings_.end() || part->first != address || part->second.bytes > bytes ||
        part->second.unmapping) {
      return InvalidValue("the range does not consist of whole mappings");
    }
    parts.push_back(part);
    address += part->second.bytes;
    bytes -= part->second.bytes;
  }
  return parts;
}

absl::Status VirtualMemory::Map(DeviceAddress address, uint64_t bytes, Id id) {
  const auto named = named_.find(id);
  if (named == named_.end()) return InvalidValue("no such physical memory");
  if (!WholeGranules(address, bytes) || bytes > named->second.memory->bytes())
    return InvalidValue("not whole granules, or more than the physical memory has");
  const Range* const range = Containing(address, bytes);
  if (range == nullptr) return InvalidValue("not inside a reserved range of addresses");
  if (Overlaps(address, bytes)) return InvalidValue("memory is mapped there already");
  if (mappings_.size() >= kLimit) return CudaError(kCudaErrorOutOfMemory, "too many mappings");
  absl::Status status = range->owner->space->MapPhysical(address, bytes, named->second.memory);
  if (status.ok()) mappings_[address] = Mapping{bytes, range->owner};
  return status;
}

Task<absl::Status> VirtualMemory::Unmap(DeviceAddress address, uint64_t bytes) {
  const auto parts = Exactly(address, bytes);
  if (!parts.ok()) co_return parts.status();
  for (const Mappings::iterator part : *parts) part->second.unmapping = true;
  absl::Status status;
  for (SessionDevice& device : devices_) status.Update(co_await device.coroutine->Idle());
  // When work is lost, the memory stays until the session ends, because a device may still write to
  // it.
  if (!status.ok()) co_return status;
  for (const Mappings::iterator part : *parts) {
    for (size_t i = 0; i < devices_.size(); ++i) {
      if ((part->second.accessible >> i & 1) == 0) continue;
      status.Update(
          devices_[i].space->SetAccess(part->first, part->second.bytes, MemoryAccess::kNone));
    }
    status.Update(part->second.owner->space->UnmapPhysical(part->first, part->second.bytes));
    mappings_.erase(part);
  }
  co_return status;
}

absl::Status VirtualMemory::SetAccess(SessionDevice& device, DeviceAddress address, uint64_t bytes,
                                      MemoryAccess access) {
  const auto parts = Exactly(address, bytes);
  if (!parts.ok()) return parts.status();
  const uint32_t bit = uint32_t{1} << IndexOf(device);
  for (const Mappings::iterator part : *parts) {
    DETSHARE_RETURN_IF_ERROR(device.space->SetAccess(part->first, part->second.bytes, access));
    if (access == MemoryAccess::kNone) {
      part->second.accessible &= ~bit;
    } else {
      part->second.accessible |= bit;
    }
  }
  return absl::OkStatus();
}

}  // namespace detshare
