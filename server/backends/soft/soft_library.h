// Code that was loaded for one session, and its kernels.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coroutine_runtime/device.h"
#include "proto/mutex.h"
#include "server/backends/soft/occupancy.h"
#include "server/backends/soft/ptx/module.h"
#include "server/backends/soft/soft_memory.h"

namespace detshare::soft {

// A module with its variables in place. The library and launches in flight share it.
struct LoadedModule {
  // Puts the module's variables into the session's memory and fills them. `place` chooses the
  // addresses of managed variables. `registers` are those that kernels are known to use.
  static absl::StatusOr<std::shared_ptr<LoadedModule>> Create(
      std::shared_ptr<SpaceState> space, std::unique_ptr<ptx::Module> module,
      std::map<std::string, uint32_t> registers, std::shared_ptr<KernelOutput> output,
      const PlaceManaged& place);
  LoadedModule() = default;
  ~LoadedModule();
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  std::shared_ptr<SpaceState> space;
  std::unique_ptr<ptx::Module> module;
  std::unique_ptr<ptx::Executable> executable;
  std::map<std::string, uint32_t> registers;  // per thread, by the kernel's name, where known
  std::vector<uint64_t> addresses;            // of module->globals(); 0: not allocated
  std::shared_ptr<KernelOutput> output;       // may be null
};

// Any thread.
class SoftKernel final : public Kernel {
 public:
  SoftKernel(const DeviceProperties& device, std::shared_ptr<LoadedModule> module, size_t index);

  const KernelInfo& info() const override { return info_; }
  absl::Status SetAttribute(int attribute, int value) override;
  absl::StatusOr<int> MaxActiveBlocks(const OccupancyQuery& query) override;
  absl::StatusOr<uint64_t> AvailableDynamicShared(int blocks, int block_size) override;
  absl::StatusOr<int> MaxPotentialClusterSize(const LaunchShape& shape) override;
  absl::StatusOr<int> MaxActiveClusters(const LaunchShape& shape) override;

  const std::shared_ptr<LoadedModule>& module() const { return module_; }
  size_t index() const { return index_; }
  const ptx::KernelInfo& ptx_info() const { return module_->module->kernels()[index_]; }
  // A copy of the attributes: a thread may set them while another thread launches.
  std::array<int32_t, 24> attributes() const;
  KernelResources resources() const;

 private:
  const DeviceProperties& device_;
  const std::shared_ptr<LoadedModule> module_;
  const size_t index_;
  mutable Mutex mutex_;  // guards info_.attributes
  KernelInfo info_;
};

class SoftLibrary final : public Library {
 public:
  SoftLibrary(const DeviceProperties& device, std::shared_ptr<LoadedModule> module);

  std::vector<std::string> KernelNames() const override;
  absl::StatusOr<Kernel*> GetKernel(std::string_view name) override;
  absl::StatusOr<Global> GetGlobal(std::string_view name) override;

 private:
  const DeviceProperties& device_;
  const std::shared_ptr<LoadedModule> module_;
  Mutex mutex_;
  // Each made at its first use.
  std::map<size_t, std::unique_ptr<SoftKernel>> kernels_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::soft
