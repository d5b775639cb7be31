#include "server/session/code_table.h"

#include <utility>

#include "absl/types/span.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/durations.h"
#include "coroutine_runtime/quota.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/session_caps.h"
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

static_assert(kMaxLibraries <= IdTable<int>::kMaxPlaces && kMaxKernels <= IdTable<int>::kMaxPlaces);

}  // namespace

CodeTable::CodeTable(const SessionLimits& limits, std::shared_ptr<Quota> tenant)
    : limits_(limits), tenant_(std::move(tenant)) {}

absl::StatusOr<QuotaCharge> CodeTable::TakeRoomForImage(uint64_t bytes) const {
  if (loaded_ >= limits_.libraries) return CudaError(kCudaErrorOutOfMemory, "too many libraries");
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
  // The library, its image and its charges count until the last owner releases the library. A graph
  // may be that owner.
  loaded->library = std::shared_ptr<Library>(
      library.release(), [this, image_bytes, managed, taken = std::move(taken)](Library* unloaded) {
        delete unloaded;
        image_bytes_ -= image_bytes;
        --loaded_;
      });
  image_bytes_ += image_bytes;
  ++loaded_;
  loaded->managed = std::move(managed);
  loaded->device = &device;
  loaded->context = context;
  loaded->code = CodeOfImage(image);
  const LibraryId id = libraries_.Add(std::move(loaded));
  if (id == 0) return CudaError(kCudaErrorOutOfMemory, "the session has used all ids of libraries");
  (*libraries_.Find(id))->id = id;
  return id;
}

CodeTable::LoadedLibrary* CodeTable::FindLibrary(const SessionDevice& device, LibraryId id) {
  const std::unique_ptr<LoadedLibrary>* const found = libraries_.Find(id);
  if (found == nullptr) return nullptr;
  LoadedLibrary* const library = found->get();
  return library->device == &device && !library->unloading ? library : nullptr;
}

std::shared_ptr<const ManagedBlock> CodeTable::ManagedOf(LibraryId id) const {
  const std::unique_ptr<LoadedLibrary>* const found = libraries_.Find(id);
  return found != nullptr ? (*found)->managed : nullptr;
}

absl::StatusOr<KernelId> CodeTable::AddKernel(LoadedLibrary& library, const std::string& name) {
  if (auto known = library.kernels.find(name); known != library.kernels.end()) return known->second;
  if (kernels_.size() >= limits_.kernels)
    return CudaError(kCudaErrorOutOfMemory, "too many kernels");
  DETSHARE_ASSIGN_OR_RETURN(Kernel* const kernel, library.library->GetKernel(name));
  kernel->set_code(
      StableHash(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(name.data()), name.size()),
                 library.code));
  const KernelId id = kernels_.Add({kernel, library.device, library.id});
  if (id == 0) return CudaError(kCudaErrorOutOfMemory, "the session has used all ids of kernels");
  library.kernels.emplace(name, id);
  return id;
}

void CodeTable::EndLibrary(LoadedLibrary& library) {
  library.unloading = true;
  for (const auto& [name, kernel] : library.kernels) kernels_.Remove(kernel);
}

void CodeTable::EndLibrariesOf(ContextId context) {
  libraries_.ForEach([&](LibraryId, const std::unique_ptr<LoadedLibrary>& library) {
    if (library->context == context) EndLibrary(*library);
  });
}

void CodeTable::RemoveLibrary(LibraryId id) {
  const std::unique_ptr<LoadedLibrary>* const found = libraries_.Find(id);
  if (found == nullptr) return;
  for (const auto& [name, kernel] : (*found)->kernels) kernels_.Remove(kernel);
  libraries_.Remove(id);
}

void CodeTable::RemoveLibrariesOf(ContextId context) {
  libraries_.ForEach([&](LibraryId id, const std::unique_ptr<LoadedLibrary>& library) {
    if (library->context == context) RemoveLibrary(id);
  });
}

std::shared_ptr<Kernel> CodeTable::ShareKernel(const SessionDevice& device, KernelId id) const {
  Kernel* const kernel = FindKernel(device, id);
  if (kernel == nullptr) return nullptr;
  // A kernel ends before its library.
  const std::unique_ptr<LoadedLibrary>& owner = *libraries_.Find(kernels_.Find(id)->library);
  return std::shared_ptr<Kernel>(owner->library, kernel);
}

}  // namespace detshare
