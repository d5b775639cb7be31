// Code of one session on a real GPU: libraries, their kernels, and linking.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "coroutine_runtime/device.h"
#include "server/backends/cuda/cuda_address_space.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/deferred_reclaimer.h"
#include "server/backends/cuda/printing_kernels.h"

namespace detshare::cuda {

class CudaKernel final : public Kernel {
 public:
  // Uploads the code, as any query about the kernel would do, and therefore waits for an idle
  // moment of the device. `print` is null unless the kernel may print.
  static absl::StatusOr<std::unique_ptr<CudaKernel>> Create(
      CudaContext& context, CudaAddressSpace& space, CUkernel kernel, std::string name,
      const std::function<void(std::string_view)>* print);

  const KernelInfo& info() const override { return info_; }
  absl::Status SetAttribute(int attribute, int value) override;
  absl::StatusOr<int> MaxActiveBlocks(const OccupancyQuery& query) override;
  absl::StatusOr<uint64_t> AvailableDynamicShared(int blocks, int block_size) override;
  absl::StatusOr<int> MaxPotentialClusterSize(const LaunchShape& shape) override;
  absl::StatusOr<int> MaxActiveClusters(const LaunchShape& shape) override;

  // The kernel in the primary context. Such functions also run on streams of green contexts.
  CUfunction function() const { return function_; }
  // The kernel in no particular context.
  CUkernel handle() const { return kernel_; }
  // The bytes of the context's local memory that each of its threads needs.
  uint32_t local_bytes() const { return info_.attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES]; }
  const std::function<void(std::string_view)>* print() const { return print_; }

 private:
  CudaKernel(CudaContext& context, CUkernel kernel,
             const std::function<void(std::string_view)>* print)
      : context_(context), kernel_(kernel), print_(print) {}

  absl::Status Upload();

  CudaContext& context_;
  const CUkernel kernel_;
  const std::function<void(std::string_view)>* const print_;
  CUfunction function_ = nullptr;
  KernelInfo info_;
};

class CudaLibrary final : public Library {
 public:
  static absl::StatusOr<std::unique_ptr<CudaLibrary>> Load(
      CudaContext& context, DeferredReclaimer& reclaimer, CudaAddressSpace& space,
      absl::Span<const std::byte> image, absl::Span<const JitOptionValue> options, int device_sm,
      CompileLogs& logs, std::function<void(std::string_view)> print, const PlaceManaged& place);
  // Leaves unloading to the deferred reclaimer, because it waits for all work on the device.
  ~CudaLibrary() override;

  std::vector<std::string> KernelNames() const override;
  absl::StatusOr<Kernel*> GetKernel(std::string_view name) override;
  absl::StatusOr<Global> GetGlobal(std::string_view name) override;

 private:
  CudaLibrary(CudaContext& context, DeferredReclaimer& reclaimer, CudaAddressSpace& space,
              CUlibrary library, PrintingKernels printing,
              std::function<void(std::string_view)> print)
      : context_(context),
        reclaimer_(reclaimer),
        space_(space),
        library_(library),
        printing_(std::move(printing)),
        print_(std::move(print)) {}

  CudaContext& context_;
  DeferredReclaimer& reclaimer_;
  CudaAddressSpace& space_;
  const CUlibrary library_;
  const PrintingKernels printing_;
  const std::function<void(std::string_view)> print_;

  std::mutex mutex_;  // guards the maps
  std::map<std::string, std::unique_ptr<CudaKernel>, std::less<>> kernels_;
  std::map<std::string, Global, std::less<>> globals_;
};

// Links as cuLink* does, and returns the linked code.
absl::StatusOr<std::string> LinkImages(CudaContext& context,
                                       absl::Span<const LinkInputImage> inputs,
                                       absl::Span<const JitOptionValue> options, CompileLogs& logs);

}  // namespace detshare::cuda
