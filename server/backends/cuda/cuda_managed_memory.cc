#include "server/backends/cuda/cuda_managed_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/cuda_device.h"
#include "server/backends/cuda/uvm_advice.h"
#include "server/backends/cuda/uvm_sharing.h"

namespace detshare::cuda {
namespace {

// A second in all.
constexpr int kTriesForDeadClients = 100;
constexpr std::chrono::milliseconds kTryAgain(10);

void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// Keeps the addresses from other mappings of this process.
bool MapNothing(uint64_t address, uint64_t bytes, int how) {
  return mmap(Pointer(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | how,
              -1, 0) == Pointer(address);
}

bool Supports(const CudaContext& context, CUdevice_attribute attribute) {
  int value = 0;
  return context.api.cuDeviceGetAttribute(&value, attribute, context.device) == CUDA_SUCCESS &&
         value != 0;
}

}  // namespace

std::unique_ptr<CudaManagedMemory> CudaManagedMemory::Create(std::vector<CudaContext*> contexts,
                                                             const ManagedWindow& window) {
  const int descriptor = SharedManagedMemory();
  if (descriptor < 0 || contexts.empty()) return nullptr;
  uint64_t capacity = UINT64_MAX;
  for (const CudaContext* const context : contexts) {
    size_t total = 0;
    if (!Supports(*context, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) ||
        context->api.cuDeviceTotalMem(&total, context->device) != CUDA_SUCCESS) {
      return nullptr;
    }
    capacity = std::min<uint64_t>(capacity, total);
  }
  return std::unique_ptr<CudaManagedMemory>(
      new CudaManagedMemory(std::move(contexts), descriptor, window, capacity));
}

absl::Status CudaManagedMemory::Allocate(uint64_t address, uint64_t reserved) {
  CudaContext& context = *contexts_[0];
  // libcuda copies managed memory in the group of the context that allocated it, whatever the copy's
  // stream is. Only the urgent group needs no turn.
  if (context.open_urgent)
    context.open_urgent().IgnoreError();  // without memory for it, the copies take turns
  (context.urgent() != nullptr ? *context.urgent() : context.ordinary).Enter();
  CUdeviceptr made = 0;
  CUresult result;
  {
    const AddressForDriver place(address);
    result = context.api.cuMemAllocManaged(&made, reserved, CU_MEM_ATTACH_GLOBAL);
  }
  DETSHARE_RETURN_IF_ERROR(context.Check(result, "cuMemAllocManaged"));
  if (made == address && MapNothing(address, reserved, MAP_FIXED)) return absl::OkStatus();
  context.api.cuMemFree(made);
  return absl::UnavailableError(absl::StrCat("the driver puts managed memory at 0x",
                                             absl::Hex(made), " and not at 0x",
                                             absl::Hex(address)));
}

bool CudaManagedMemory::Unused(uint64_t address, uint64_t reserved) const {
  // The module lets only one process map a range.
  const auto try_to_map = [&] {
    const bool mapped =
        mmap(Pointer(address), reserved, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             descriptor_, static_cast<off_t>(address)) == Pointer(address);
    // The range is new, and ends here.
    MapNothing(address, reserved, mapped ? MAP_FIXED : MAP_FIXED_NOREPLACE);
    return mapped;
  };
  if (try_to_map()) return true;
  RemoveDeadMappings();
  return try_to_map();
}

void CudaManagedMemory::GiveBackUnused() {
  std::erase_if(mapped_, [this](const Range& range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const uint64_t reserved = ManagedAddresses::ReservedFor(range.bytes);
    if (!Unused(range.address, reserved)) return false;
    addresses_.Free(range.bytes);
    addresses_.GiveBack(range.address, reserved);
    return true;
  });
}

absl::StatusOr<ManagedMemory::Range> CudaManagedMemory::Reserve(uint64_t bytes) {
  const MutexLock lock(&mutex_);
  if (!mapped_.empty()) GiveBackUnused();
  std::optional<ManagedAddresses::Taken> taken = addresses_.Take(bytes);
  // A client that has just ended may still be giving its memory back.
  for (int tries = 0; !taken.has_value() && !mapped_.empty() && tries < kTriesForDeadClients;
       ++tries) {
    std::this_thread::sleep_for(kTryAgain);
    GiveBackUnused();
    taken = addresses_.Take(bytes);
  }
  if (!taken.has_value())
    return absl::ResourceExhaustedError("as much managed memory as the device has is in use");
  if (taken->fresh) {
    const absl::Status made = Allocate(taken->address, ManagedAddresses::ReservedFor(bytes));
    if (!made.ok()) {
      addresses_.Free(bytes);
      return made;
    }
  }
  return Range{taken->address, bytes};
}

void CudaManagedMemory::Release(const Range& range) {
  const MutexLock lock(&mutex_);
  mapped_.push_back(range);
  GiveBackUnused();
}

absl::Status CudaManagedMemory::Advise(uint64_t address, uint64_t bytes, int advice,
                                       ManagedPlace place) {
  CudaContext& context = *contexts_[0];
  CUuuid gpu;
  if (place != nullptr) {
    DETSHARE_RETURN_IF_ERROR(
        context.Check(context.api.cuDeviceGetUuid(&gpu, DriverPlace(place)), "cuDeviceGetUuid"));
  }
  return context.Check(AdviseManaged(descriptor_, address, bytes, static_cast<CUmem_advise>(advice),
                                     place != nullptr ? &gpu : nullptr),
                       "advice for managed memory");
}

}  // namespace detshare::cuda
