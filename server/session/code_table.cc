#include "server/session/code_table.h"

#include <utility>

#include "absl/types/span.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/durations.h"
#include "coroutine_runtime/quota.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/session/session_limits.h"

namespace detshare {
namespace {

// Returns a hash that identifies a library's code, so that known durations of its kernels are found
// again (durations.h). For a large image it covers only the size and both ends. A collision costs
// only a few wrong estimates.
uint64_t CodeOfImage(std::span<const uint8_t> image) {
  constexpr size_t kEnd = 32768;
  const auto part = [&](size_t first, size_t bytes) {
    return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(image.data()) + first, bytes);
  };
  if (image.size() <= 2 * kEnd) return StableHash(part(0, image.size()));
  return StableHash(part(image.size() - kEnd, kEnd),
                    StableHash(part(0, kEnd), /*seed=*/image.size()));
}

}  // namespace

CodeTable::CodeTable(const SessionLimits& limits, std::shared_ptr<Quota> tenant)
    : limits_(limits), tenant_(std::move(tenant)) {
  libraries_.push_back(nullptr);  // ids begin at 1
  kernels_.push_back({});
}

absl::StatusOr<QuotaCharge> CodeTable::TakeRoomForImage(uint64_t bytes) const {
  // Unloaded libraries count as well, because ids are not reused.
  if (libraries_.size() > limits_.libraries)
    return CudaError(kCudaErrorOutOfMemory, "too many libraries");
  if (bytes > limits_.image_bytes - image_bytes_)
    return CudaError(kCudaErrorOutOfMemory, "too much code");
  return Quota::Take(tenant_, bytes);
}

absl::StatusOr<LibraryId> CodeTable::AddLibrary(SessionDevice& device,
                                                std::unique_ptr<Library> library, ContextId context,
                                                std::span<const uint8_t> image,
                                                std::shared_ptr<const ManagedBlock> managed,
                                                std::vector<QuotaCharge> charges) {
  const uint64_t image_bytes = image.size();
  auto taken = std::make_shared<const std::vector<QuotaCharge>>(std::move(charges));
  auto loaded = std::make_unique<LoadedLibrary>();
  // The image and its charges count until the last owner releases the library. A graph may be that
  // owner.
  loaded->library = std::shared_ptr<Library>(
      library.release(), [this, image_bytes, managed, taken = std::move(taken)](Library* unloaded) {
        delete unloaded;
        image_bytes_ -= image_bytes;
      });
  loaded->managed = std::move(managed);
  loaded->device = &device;
  loaded->context = context;
  loaded->code = CodeOfImage(image);
  loaded->id = static_cast<LibraryId>(libraries_.size());
  image_bytes_ += image_bytes;
  libraries_.push_back(std::move(loaded));
  return libraries_.back()->id;
}

CodeTable::LoadedLibrary* CodeTable::FindLibrary(const SessionDevice& device, LibraryId id) {
  if (id >= libraries_.size() || libraries_[id] == nullptr) return nullptr;
  LoadedLibrary* const library = libraries_[id].get();
  return library->device == &device && !library->unloading ? library : nullptr;
}

std::shared_ptr<const ManagedBlock> CodeTable::ManagedOf(LibraryId id) const {
  return id < libraries_.size() && libraries_[id] != nullptr ? libraries_[id]->managed : nullptr;
}

absl::StatusOr<KernelId> CodeTable::AddKernel(LoadedLibrary& library, const std::string& name) {
  if (auto known = library.kernels.find(name); known != library.kernels.end()) return known->second;
  if (kernels_.size() > limits_.kernels)
    return CudaError(kCudaErrorOutOfMemory, "too many kernels");
  DETSHARE_ASSIGN_OR_RETURN(Kernel* const kernel, library.library->GetKernel(name));
  kernel->set_code(
      StableHash(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(name.data()), name.size()),
                 library.code));
  kernels_.push_back({kernel, library.device, library.id});
  const KernelId id = static_cast<KernelId>(kernels_.size() - 1);
  library.kernels.emplace(name, id);
  return id;
}

void CodeTable::RemoveLibrary(LibraryId id) {
  if (id >= libraries_.size() || libraries_[id] == nullptr) return;
  for (const auto& [name, kernel] : libraries_[id]->kernels) kernels_[kernel] = {};
  libraries_[id].reset();
}

void CodeTable::RemoveLibrariesOf(ContextId context) {
  for (size_t id = 1; id < libraries_.size(); ++id) {
    if (libraries_[id] != nullptr && libraries_[id]->context == context)
      RemoveLibrary(static_cast<LibraryId>(id));
  }
}

std::shared_ptr<Kernel> CodeTable::ShareKernel(const SessionDevice& device, KernelId id) const {
  Kernel* const kernel = FindKernel(device, id);
  if (kernel == nullptr) return nullptr;
  return std::shared_ptr<Kernel>(libraries_[kernels_[id].library]->library, kernel);
}

}  // namespace detshare
