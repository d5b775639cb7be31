// One real GPU.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "coroutine_runtime/device.h"
#include "proto/mutex.h"
#include "server/backends/cuda/cuda_backend.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/cuda_hold.h"
#include "server/backends/cuda/cuda_images.h"
#include "server/backends/cuda/cuda_queue.h"
#include "server/backends/cuda/cuda_tensor_maps.h"
#include "server/backends/cuda/deferred_reclaimer.h"
#include "server/backends/cuda/host_registry.h"
#include "server/backends/cuda/time_slices.h"

namespace detshare::cuda {

class CudaDevice final : public Device {
 public:
  // Retains the primary context of device number `ordinal`.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(std::shared_ptr<const DriverApi> api,
                                                            std::shared_ptr<HostRegistry> registry,
                                                            int ordinal,
                                                            const CudaOptions& options);
  ~CudaDevice() override;

  const DeviceProperties& properties() const override { return properties_; }
  Partition& whole() override { return *whole_; }
  Partition* urgent() override { return urgent_.load(std::memory_order_acquire); }
  absl::Status OpenUrgent() override;
  void KeepOrdinary(bool keep) override;
  void ShareOrdinary(bool share) override;
  void ShareWith(std::function<bool()> others_work) override;
  absl::StatusOr<std::unique_ptr<GroupHold>> CreateHold() override;
  absl::StatusOr<std::unique_ptr<Partition>> CreatePartition(int first, int count) override;
  absl::StatusOr<std::unique_ptr<Marker>> CreateMarker(bool timed) override;
  absl::StatusOr<bool> Reached(Marker& marker) override;
  absl::StatusOr<float> ElapsedMilliseconds(Marker& start, Marker& end) override;
  absl::StatusOr<std::unique_ptr<AddressSpace>> CreateAddressSpace(DeviceAddress base,
                                                                   uint64_t size) override;
  absl::StatusOr<std::shared_ptr<PhysicalMemory>> CreatePhysicalMemory(uint64_t bytes) override;
  absl::StatusOr<std::unique_ptr<Library>> LoadLibrary(AddressSpace& space,
                                                       absl::Span<const std::byte> image,
                                                       absl::Span<const JitOptionValue> options,
                                                       CompileLogs& logs,
                                                       const PlaceManaged& place) override;
  void FlushOutput(AddressSpace& space) override;
  absl::StatusOr<std::string> Link(absl::Span<const LinkInputImage> inputs,
                                   absl::Span<const JitOptionValue> options,
                                   CompileLogs& logs) override;
  absl::StatusOr<std::unique_ptr<Graph>> InstantiateGraph(AddressSpace& space, Partition& partition,
                                                          const GraphDescription& description,
                                                          GraphPlace* refused) override;
  absl::StatusOr<uint64_t> CreateGraphCondition(AddressSpace& space, uint32_t default_value,
                                                bool assign_default, uint64_t sibling) override;
  void EndGraphCondition(AddressSpace& space, uint64_t id) override;
  Memory memory() const override;
  std::map<int, int> PeerAttributes(const Device& other) const override;
  absl::StatusOr<Limit> SetLimit(AddressSpace& space, int limit, uint64_t value) override;
  absl::Status ResetPersistingCache() override;
  absl::Status health() const override { return context_->health(); }
  ImageDevice* images() override { return images_.get(); }
  TensorMapEncoder* tensor_maps() override { return tensor_maps_.get(); }
  ManagedMemory* managed_memory() override { return managed_memory_.get(); }

  CudaContext& context() const { return *context_; }
  // Call it before other threads use the device.
  void set_managed_memory(std::shared_ptr<ManagedMemory> memory) {
    managed_memory_ = std::move(memory);
  }

 private:
  CudaDevice(std::shared_ptr<const DriverApi> api, std::shared_ptr<HostRegistry> registry,
             bool stand_in_groups)
      : api_(std::move(api)), registry_(std::move(registry)), stand_in_groups_(stand_in_groups) {}

  // Divides the SMs into the groups from which partitions are made.
  absl::Status Split(int sm_group);
  // Publishes the urgent group, which is open.
  void PublishUrgent();
  // At addresses that are free.
  absl::StatusOr<std::unique_ptr<AddressSpace>> CreateSpaceAnywhere(uint64_t bytes);
  // Returns whether the driver hands out memory with old contents.
  absl::StatusOr<bool> MemoryKeepsContents();

  const std::shared_ptr<const DriverApi> api_;
  const std::shared_ptr<HostRegistry> registry_;
  const bool stand_in_groups_;  // as in CudaOptions
  std::unique_ptr<CudaContext> context_;
  std::unique_ptr<DeferredReclaimer> reclaimer_;
  std::unique_ptr<CudaImages> images_;
  std::unique_ptr<CudaTensorMaps> tensor_maps_;    // null: the GPU has none
  std::shared_ptr<ManagedMemory> managed_memory_;  // of all devices; null: it cannot be shared
  DeviceProperties properties_;
  std::unique_ptr<CudaPartition> whole_;
  std::unique_ptr<GroupClock> group_clock_;  // null: the device cannot preempt
  // The urgent group's; null while it is not open. urgent_ publishes both (release).
  std::unique_ptr<HoldPool> holds_;
  std::unique_ptr<CudaPartition> own_urgent_;
  std::atomic<CudaPartition*> urgent_{nullptr};
  Mutex opening_;  // held by the thread that opens the urgent group
  // Group i begins at SM i * sm_group. The last group holds the SMs that the driver left over, so
  // it may be larger or smaller than the others.
  std::vector<CUdevResource> groups_;
  CUstream zeroing_stream_ = nullptr;            // null: new memory is zero
  std::shared_ptr<CudaPhysicalMemory> leading_;  // of address spaces; null until the device is made
};

// The place as the driver's functions take it: a device, or CU_DEVICE_CPU.
CUdevice DriverPlace(ManagedPlace place);

}  // namespace detshare::cuda
