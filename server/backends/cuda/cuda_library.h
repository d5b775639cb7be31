// Code of one session on a real GPU: libraries, their kernels, and linking.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coroutine_runtime/device.h"
#include "proto/mutex.h"
#include "server/backends/cuda/cuda_address_space.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/deferred_reclaimer.h"
#include "server/backends/cuda/printing_kernels.h"

namespace detshare::cuda {

class CudaKernel final : public Kernel {
 public:
  // Uploads the code, as any query about the kernel would do, and therefore waits for an idle
  // moment of the device. `prints`: the kernel may print. `bound` as in
  // Kernel::bound_to_group().
  static absl::StatusOr<std::unique_ptr<CudaKernel>> Create(CudaContext& context,
                                                            CudaAddressSpace& space,
                                                            CUkernel kernel, std::string name,
                                                            bool prints, bool bound);

  const KernelInfo& info() const override { return info_; }
  bool bound_to_group() const override { return bound_; }
  bool CanStartIn(bool urgent) const override;
  bool Prepare(AddressSpace& space, bool urgent) override;
  absl::Status SetAttribute(int attribute, int value) override;
  absl::StatusOr<int> MaxActiveBlocks(const OccupancyQuery& query) override;
  absl::StatusOr<uint64_t> AvailableDynamicShared(int blocks, int block_size) override;
  absl::StatusOr<int> MaxPotentialClusterSize(const LaunchShape& shape) override;
  absl::StatusOr<int> MaxActiveClusters(const LaunchShape& shape) override;

  // The kernel in the group's context; null until it is uploaded there. Functions of the ordinary
  // group also run on streams of green contexts.
  CUfunction function(const CudaGroup& group) const { return functions_[group.urgent]; }
  // Uploads the code to the group, and therefore waits for an idle moment of the group.
  absl::Status UploadTo(CudaGroup& group, CudaAddressSpace& space,
                        std::chrono::milliseconds limit = IdleWindow::kNoLimit);
  // The kernel in no particular context.
  CUkernel handle() const { return kernel_; }
  // The bytes of the context's local memory that each of its threads needs.
  uint32_t local_bytes() const { return info_.attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES]; }
  bool prints() const { return prints_; }  // it may

 private:
  CudaKernel(CudaContext& context, CUkernel kernel, bool prints, bool bound)
      : context_(context), kernel_(kernel), prints_(prints), bound_(bound) {}

  absl::Status ReadInfo();
  // A group to which the code is uploaded.
  CudaGroup& home() const {
    return functions_[0] != nullptr ? context_.ordinary : *context_.urgent();
  }

  CudaContext& context_;
  const CUkernel kernel_;
  const bool prints_;
  const bool bound_;
  std::array<CUfunction, 2> functions_{};  // of the ordinary and of the urgent group
  // The attributes that were set, which the function of a further group gets as well.
  std::map<CUfunction_attribute, int> set_attributes_;
  KernelInfo info_;
};

class CudaLibrary final : public Library {
 public:
  static absl::StatusOr<std::unique_ptr<CudaLibrary>> Load(
      CudaContext& context, DeferredReclaimer& reclaimer, CudaAddressSpace& space,
      absl::Span<const std::byte> image, absl::Span<const JitOptionValue> options, int device_sm,
      CompileLogs& logs, const PlaceManaged& place);
  // Leaves unloading to the deferred reclaimer, because it waits for all work on the device.
  ~CudaLibrary() override;

  std::vector<std::string> KernelNames() const override;
  absl::StatusOr<Kernel*> GetKernel(std::string_view name) override;
  absl::StatusOr<Global> GetGlobal(std::string_view name) override;

 private:
  CudaLibrary(CudaContext& context, DeferredReclaimer& reclaimer, CudaAddressSpace& space,
              CUlibrary library, PrintingKernels printing, bool bound)
      : context_(context),
        reclaimer_(reclaimer),
        space_(space),
        library_(library),
        printing_(std::move(printing)),
        bound_(bound) {}

  CudaContext& context_;
  DeferredReclaimer& reclaimer_;
  CudaAddressSpace& space_;
  const CUlibrary library_;
  const PrintingKernels printing_;
  const bool bound_;  // its kernels are bound to a group

  Mutex mutex_;
  std::map<std::string, std::unique_ptr<CudaKernel>, std::less<>> kernels_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Global, std::less<>> globals_ ABSL_GUARDED_BY(mutex_);
};

// Links as cuLink* does, and returns the linked code.
absl::StatusOr<std::string> LinkImages(CudaContext& context,
                                       absl::Span<const LinkInputImage> inputs,
                                       absl::Span<const JitOptionValue> options, CompileLogs& logs);

}  // namespace detshare::cuda
