// A session's textures and surfaces on the software GPU. Kernels look them up by handle. Handles
// count up from 1, so a session's handles depend on its own calls alone.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "proto/mutex.h"
#include "server/backends/soft/ptx/texture.h"

namespace detshare::soft {

// Any thread. A caller that removes an image must drain the session's AccessGate before it frees
// the image's memory.
class ImageRegistry final : public ptx::ImageTable {
 public:
  uint64_t AddTexture(ptx::Texture texture) {
    const WriterMutexLock lock(&mutex_);
    textures_.emplace(++last_, std::move(texture));
    return last_;
  }
  uint64_t AddSurface(ptx::Image image) {
    const WriterMutexLock lock(&mutex_);
    surfaces_.emplace(++last_, std::move(image));
    return last_;
  }

  // The removed object stays at its address until the returned holder is destroyed.
  using TextureHolder = std::map<uint64_t, ptx::Texture>::node_type;
  using SurfaceHolder = std::map<uint64_t, ptx::Image>::node_type;
  TextureHolder RemoveTexture(uint64_t handle) {
    const WriterMutexLock lock(&mutex_);
    return textures_.extract(handle);
  }
  SurfaceHolder RemoveSurface(uint64_t handle) {
    const WriterMutexLock lock(&mutex_);
    return surfaces_.extract(handle);
  }

  const ptx::Texture* FindTexture(uint64_t handle) const override {
    const ReaderMutexLock lock(&mutex_);
    const auto found = textures_.find(handle);
    return found == textures_.end() ? nullptr : &found->second;
  }
  const ptx::Image* FindSurface(uint64_t handle) const override {
    const ReaderMutexLock lock(&mutex_);
    const auto found = surfaces_.find(handle);
    return found == surfaces_.end() ? nullptr : &found->second;
  }

 private:
  mutable SharedMutex mutex_;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, ptx::Texture> textures_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, ptx::Image> surfaces_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::soft
