// The arrays, textures and surfaces of one session, their owners, and the references that keep an
// array alive.
//
//     array id  --> array  <-- textures and surfaces (by their handles)
//
// When a client destroys an object, a Take...() function removes it from the tables at once. The
// caller owns the object then, and must keep it until no work of the session uses it. The last
// texture or surface on an array frees the array's memory.
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

// A texture or surface with its array, or an array alone. The object must be destroyed before the
// array. Assignment would destroy them in the wrong order, so it is deleted.
struct OwnedImage {
  OwnedImage() = default;
  OwnedImage(std::shared_ptr<Array> array, std::unique_ptr<ImageObject> object)
      : array(std::move(array)), object(std::move(object)) {}
  OwnedImage(OwnedImage&&) = default;
  OwnedImage& operator=(OwnedImage&&) = delete;

  std::shared_ptr<Array> array;  // null: the object reads linear memory
  std::unique_ptr<ImageObject> object;
  ContextId context = 0;
};

class SessionImages {
 public:
  enum class Kind : uint8_t { kTexture, kSurface };

  size_t array_count() const { return arrays_.size(); }
  size_t object_count() const { return objects_.size(); }
  uint64_t array_bytes() const { return bytes_->load(std::memory_order_relaxed); }

  // The array keeps `charge` until its memory is free, which may be after the session.
  ArrayId AddArray(const SessionDevice* device, ContextId context, std::unique_ptr<Array> array,
                   QuotaCharge charge);
  // Null when the device has no such array.
  std::shared_ptr<Array> FindArray(const SessionDevice* device, ArrayId id) const;
  std::shared_ptr<Array> TakeArray(const SessionDevice* device, ArrayId id);

  // Returns false when the device returned a handle that is already in use.
  bool AddObject(const SessionDevice* device, Kind kind, OwnedImage object);
  // Returns an empty OwnedImage when there is no such object.
  OwnedImage TakeObject(const SessionDevice* device, Kind kind, uint64_t handle);

  // Keeps an object until Clear(), because work that may use it was lost.
  void Keep(OwnedImage object) { kept_.push_back(std::move(object)); }

  // Takes all objects of a context. Work that comes from now on does not find them.
  std::vector<OwnedImage> TakeContext(ContextId context);
  // Removes all objects.
  void Clear();

 private:
  struct OwnedArray {
    std::shared_ptr<Array> array;
    const SessionDevice* device = nullptr;
    ContextId context = 0;
  };
  // Handles are unique within a device and kind.
  using ObjectKey = std::pair<std::pair<const SessionDevice*, Kind>, uint64_t>;

  // Bytes of texels. The arrays share the counter, because some may outlive the session's tables.
  const std::shared_ptr<std::atomic<uint64_t>> bytes_ =
      std::make_shared<std::atomic<uint64_t>>(0);  // relaxed: for reports only
  ArrayId next_array_ = 1;
  absl::flat_hash_map<ArrayId, OwnedArray> arrays_;
  absl::flat_hash_map<ObjectKey, OwnedImage> objects_;
  std::vector<OwnedImage> kept_;
};

}  // namespace detshare
