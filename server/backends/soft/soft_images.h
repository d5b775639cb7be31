// Arrays, textures and surfaces of the software GPU. An array is memory of the daemon that has no
// address in a session.
#pragma once

#include <memory>

#include "coroutine_runtime/device_array.h"
#include "server/backends/soft/soft_memory.h"

namespace detshare::soft {

// The texels of all levels of an array, zeroed at first. The array and its copies in flight share
// them.
class ArrayStorage {
 public:
  // Error: CUDA_ERROR_OUT_OF_MEMORY.
  static absl::StatusOr<std::shared_ptr<const ArrayStorage>> Create(
      const ArrayDescription& description, MemoryBudget& budget);
  ~ArrayStorage();
  ArrayStorage(const ArrayStorage&) = delete;
  ArrayStorage& operator=(const ArrayStorage&) = delete;

  const std::vector<ptx::ImageLevel>& levels() const { return levels_; }

 private:
  explicit ArrayStorage(MemoryBudget& budget) : budget_(budget) {}

  MemoryBudget& budget_;
  void* memory_ = nullptr;
  uint64_t bytes_ = 0;
  std::vector<ptx::ImageLevel> levels_;
};

class SoftArray final : public Array {
 public:
  SoftArray(const ArrayDescription& description, std::shared_ptr<const ArrayStorage> storage)
      : Array(description), storage_(std::move(storage)) {}
  const std::shared_ptr<const ArrayStorage>& storage() const { return storage_; }

 private:
  const std::shared_ptr<const ArrayStorage> storage_;
};

class SoftImages final : public ImageDevice {
 public:
  // Both arguments must outlive the object.
  SoftImages(const DeviceProperties& properties, MemoryBudget& budget)
      : properties_(properties), budget_(budget) {}

  absl::StatusOr<std::unique_ptr<Array>> CreateArray(AddressSpace& space,
                                                     const ArrayDescription& description) override;
  absl::StatusOr<std::unique_ptr<ImageObject>> CreateTexture(
      AddressSpace& space, const TextureRequest& request) override;
  absl::StatusOr<std::unique_ptr<ImageObject>> CreateSurface(AddressSpace& space,
                                                             std::shared_ptr<Array> array,
                                                             uint32_t level) override;
  absl::StatusOr<uint64_t> LinearTextureWidth(uint32_t format, uint32_t channels) override;

 private:
  const DeviceProperties& properties_;
  MemoryBudget& budget_;
};

}  // namespace detshare::soft
