// The arrays, textures and surfaces of one session: who owns what, and what keeps an array alive.
//
//     array id  --> array  <-- textures and surfaces (by their handles)
//
// What a client destroys is nobody's at once, and ends when the caller of Take... lets go of it,
// which must be when no work of the session uses it any more. An array's memory goes with the last
// texture or surface on it.
//
// Threading: the session's worker; array_bytes() from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device_array.h"
#include "coroutine_runtime/quota.h"
#include "proto/ring_abi.h"

namespace detshare {

struct SessionDevice;

// A texture or surface with what it reads, or an array alone. The object ends before the array
// does, which assignment would not see to.
struct OwnedImage {
  OwnedImage() = default;
  OwnedImage(std::shared_ptr<Array> array, std::unique_ptr<ImageObject> object)
      : array(std::move(array)), object(std::move(object)) {}
  OwnedImage(OwnedImage&&) = default;
  OwnedImage& operator=(OwnedImage&&) = delete;

  std::shared_ptr<Array> array;  // null: it reads memory
  std::unique_ptr<ImageObject> object;
  ContextId context = 0;
};

class SessionImages {
 public:
  enum class Kind : uint8_t { kTexture, kSurface };

  size_t array_count() const { return arrays_.size(); }
  size_t object_count() const { return objects_.size(); }
  uint64_t array_bytes() const { return bytes_->load(std::memory_order_relaxed); }

  // `charge` lasts as long as the array.
  ArrayId AddArray(const SessionDevice* device, ContextId context, std::unique_ptr<Array> array,
                   QuotaCharge charge);
  // Of this device, else null.
  std::shared_ptr<Array> FindArray(const SessionDevice* device, ArrayId id) const;
  std::shared_ptr<Array> TakeArray(const SessionDevice* device, ArrayId id);

  // False when the device gave a handle twice.
  bool AddObject(const SessionDevice* device, Kind kind, OwnedImage object);
  // Empty when there is none.
  OwnedImage TakeObject(const SessionDevice* device, Kind kind, uint64_t handle);

  // Work that may use it is lost: it stays until Clear().
  void Keep(OwnedImage object) { kept_.push_back(std::move(object)); }

  // Everything of a context whose work is complete; everything at all.
  void RemoveContext(ContextId context);
  void Clear();

 private:
  struct OwnedArray {
    std::shared_ptr<Array> array;
    const SessionDevice* device = nullptr;
    ContextId context = 0;
  };
  // Handles are unique within a device and kind.
  using ObjectKey = std::pair<std::pair<const SessionDevice*, Kind>, uint64_t>;

  // Bytes of texels. Shared with the arrays, some of which may outlive the session's tables.
  const std::shared_ptr<std::atomic<uint64_t>> bytes_ =
      std::make_shared<std::atomic<uint64_t>>(0);  // relaxed: for reports only
  ArrayId next_array_ = 1;
  absl::flat_hash_map<ArrayId, OwnedArray> arrays_;
  absl::flat_hash_map<ObjectKey, OwnedImage> objects_;
  std::vector<OwnedImage> kept_;
};

}  // namespace detshare
