// The libraries and kernels of one session.
//
// Threading: the session's worker; received_bytes() from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ring_abi.h"
#include "server/session/id_table.h"

namespace detshare {

class Kernel;
class Library;
class Quota;
class QuotaCharge;
struct ManagedBlock;
struct SessionDevice;
struct SessionLimits;

// Must outlive everything that holds a library of this table.
class CodeTable {
 public:
  struct LoadedLibrary {
    LibraryId id = 0;
    std::shared_ptr<Library> library;             // graphs share the libraries they use
    std::shared_ptr<const ManagedBlock> managed;  // null: no managed variables
    SessionDevice* device = nullptr;
    ContextId context = 0;  // 0: belongs to the process
    std::map<std::string, KernelId> kernels;
    uint64_t code = 0;  // identifies its image
    bool unloading = false;
  };

  // `tenant` counts the images of all of the tenant's sessions; null: no limit.
  CodeTable(const SessionLimits& limits, std::shared_ptr<Quota> tenant);

  // Counts code that the client sent.
  void CountReceived(uint64_t bytes) {
    received_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  uint64_t received_bytes() const { return received_bytes_.load(std::memory_order_relaxed); }

  // Call before an image is loaded. Returns the tenant's charge for it.
  absl::StatusOr<QuotaCharge> TakeRoomForImage(uint64_t bytes) const;
  // `image`: the image that the library was loaded from. `charges` end with the library.
  absl::StatusOr<LibraryId> AddLibrary(SessionDevice& device, std::unique_ptr<Library> library,
                                       ContextId context, std::span<const uint8_t> image,
                                       std::shared_ptr<const ManagedBlock> managed,
                                       std::vector<QuotaCharge> charges);
  // nullptr when the device has no such library, or the library is being unloaded.
  LoadedLibrary* FindLibrary(const SessionDevice& device, LibraryId id);
  // The managed variables of a library of any device; null when the library has none or does not
  // exist.
  std::shared_ptr<const ManagedBlock> ManagedOf(LibraryId id) const;
  absl::StatusOr<KernelId> AddKernel(LoadedLibrary& library, const std::string& name);
  // No call finds the library and its kernels any more, so no work that comes from now on uses them: the
  // daemon might keep it (parking.h) beyond RemoveLibrary().
  void EndLibrary(LoadedLibrary& library);
  void EndLibrariesOf(ContextId context);
  // No kernel of the library may be queued or running.
  void RemoveLibrary(LibraryId id);
  void RemoveLibrariesOf(ContextId context);

  // nullptr when the device has no such kernel.
  Kernel* FindKernel(const SessionDevice& device, KernelId id) const {
    const LoadedKernel* const found = kernels_.Find(id);
    return found != nullptr && found->device == &device ? found->kernel : nullptr;
  }
  // Like FindKernel(), but the result also keeps the kernel's library loaded: the kernel stays
  // usable after an unload.
  std::shared_ptr<Kernel> ShareKernel(const SessionDevice& device, KernelId id) const;

 private:
  struct LoadedKernel {
    Kernel* kernel = nullptr;
    SessionDevice* device = nullptr;
    LibraryId library = 0;
  };

  const SessionLimits& limits_;
  const std::shared_ptr<Quota> tenant_;
  std::atomic<uint64_t> received_bytes_{0};  // relaxed: for reports only
  // The libraries that have an owner, and the sum of their images.
  uint32_t loaded_ = 0;
  uint64_t image_bytes_ = 0;
  IdTable<std::unique_ptr<LoadedLibrary>> libraries_;
  IdTable<LoadedKernel> kernels_;
};

}  // namespace detshare
