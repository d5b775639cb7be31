// Arrays without texels, textures and surfaces for tests of the server. Records what was made, and
// in which order it ended.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "coroutine_runtime/device_array.h"
#include "coroutine_runtime/status_cuda.h"

namespace detshare {

// Outlives the device that uses it. Any thread.
class InstantImages final : public ImageDevice {
 public:
  absl::StatusOr<std::unique_ptr<Array>> CreateArray(AddressSpace&,
                                                     const ArrayDescription& d) override {
    if (d.width > 1024) return CudaError(kCudaErrorOutOfMemory, "full");
    return std::make_unique<InstantArray>(*this, d);
  }
  absl::StatusOr<std::unique_ptr<ImageObject>> CreateTexture(AddressSpace&,
                                                             const TextureRequest& r) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      request_ = r;
      request_.resource.array = nullptr;  // the test keeps no array alive
    }
    return std::make_unique<InstantObject>(*this, "texture", ++last_);
  }
  absl::StatusOr<std::unique_ptr<ImageObject>> CreateSurface(AddressSpace&, std::shared_ptr<Array>,
                                                             uint32_t) override {
    return std::make_unique<InstantObject>(*this, "surface", ++last_);
  }
  absl::StatusOr<uint64_t> LinearTextureWidth(uint32_t format, uint32_t channels) override {
    return 1000 * format + channels;
  }

  std::vector<std::string> ended() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ended_;
  }
  // The request of the last texture, without its array.
  TextureRequest request() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return request_;
  }

 private:
  class InstantArray final : public Array {
   public:
    InstantArray(InstantImages& images, const ArrayDescription& d) : Array(d), images_(images) {}
    ~InstantArray() override { images_.Note("array"); }

   private:
    InstantImages& images_;
  };
  class InstantObject final : public ImageObject {
   public:
    InstantObject(InstantImages& images, std::string what, uint64_t handle)
        : images_(images), what_(std::move(what)), handle_(handle) {}
    ~InstantObject() override { images_.Note(what_); }
    uint64_t handle() const override { return handle_; }

   private:
    InstantImages& images_;
    const std::string what_;
    const uint64_t handle_;
  };
  void Note(const std::string& what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_.push_back(what);
  }

  std::atomic<uint64_t> last_{0x7000};
  mutable std::mutex mutex_;
  std::vector<std::string> ended_;  // guarded by mutex_
  TextureRequest request_;          // guarded by mutex_
};

}  // namespace detshare
