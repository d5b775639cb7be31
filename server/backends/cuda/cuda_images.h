// Arrays, textures and surfaces of a real GPU.
//
// The driver hands out memory for arrays with the contents of another session. So each new array is
// cleared before any session can read it. Destroying an array may wait for all running work with
// the context's lock held. So the deferred reclaimer destroys arrays, textures and surfaces, in the
// order in which they were given up: an object before its array.
//
// All of them belong to one context. In another one, the driver refuses a texture of the array
// (CUDA_ERROR_PEER_ACCESS_NOT_ENABLED), and it copies from the array in the array's time-slice group
// (docs/preemption.md). So the first of them binds the session to its group.
#pragma once

#include <array>
#include <vector>

#include "coroutine_runtime/device_array.h"
#include "proto/mutex.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/deferred_reclaimer.h"

namespace detshare::cuda {

class CudaArray final : public Array {
 public:
  // Owns `array` or `mipmap`; the other is null.
  CudaArray(CudaGroup& group, DeferredReclaimer& reclaimer, const ArrayDescription& description,
            CUarray array, CUmipmappedArray mipmap)
      : Array(description),
        group_(group),
        reclaimer_(reclaimer),
        mipmap_(mipmap),
        levels_(array == nullptr ? 0 : 1, array) {}
  ~CudaArray() override;

  // Gets the levels of a mipmapped array.
  absl::Status FindLevels();
  CudaGroup& group() const { return group_; }
  CUarray level(uint32_t index) const { return levels_[index]; }
  CUmipmappedArray mipmap() const { return mipmap_; }  // null: an ordinary array

 private:
  CudaGroup& group_;
  DeferredReclaimer& reclaimer_;
  const CUmipmappedArray mipmap_;
  std::vector<CUarray> levels_;
};

class CudaImages final : public ImageDevice {
 public:
  CudaImages(CudaContext& context, DeferredReclaimer& reclaimer)
      : context_(context), reclaimer_(reclaimer) {}
  // By now all objects that it made are gone.
  ~CudaImages() override;

  absl::StatusOr<std::unique_ptr<Array>> CreateArray(AddressSpace& space,
                                                     const ArrayDescription& description) override;
  absl::StatusOr<std::unique_ptr<ImageObject>> CreateTexture(
      AddressSpace& space, const TextureRequest& request) override;
  absl::StatusOr<std::unique_ptr<ImageObject>> CreateSurface(AddressSpace& space,
                                                             std::shared_ptr<Array> array,
                                                             uint32_t level) override;
  absl::StatusOr<uint64_t> LinearTextureWidth(uint32_t format, uint32_t channels) override;

 private:
  // What clears the arrays of one group. Made with the first array.
  struct Zeros {
    CUdeviceptr memory = 0;
    CUstream stream = nullptr;
  };

  // Makes the context of the session's group current, and binds the session to the group.
  CudaGroup& EnterAndBind(AddressSpace& space);
  // Clears all levels. Waits only for that work. Requires that the array's context is current.
  absl::Status Clear(const CudaArray& array);
  absl::Status ClearLevel(const Zeros& zeros, const CudaArray& array, uint32_t level);
  absl::Status Prepare(Zeros& zeros);

  CudaContext& context_;
  DeferredReclaimer& reclaimer_;
  Mutex clearing_;                                         // one array at a time
  std::array<Zeros, 2> zeros_ ABSL_GUARDED_BY(clearing_);  // of the ordinary and the urgent group
};

}  // namespace detshare::cuda
