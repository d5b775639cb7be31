// A cache of encoded tensor maps. Programs encode a map for every launch, and the driver always
// makes the same map of the same arguments on the same device. So the shim asks the daemon only the
// first time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>

namespace detshare::shim {

// A CUtensorMap.
using TensorMapWords = std::array<uint64_t, 16>;

// The inputs that determine a map: the device, the operation and its arguments.
class TensorMapKey {
 public:
  static constexpr size_t kArgumentBytes = 184;

  template <typename Args>
  TensorMapKey(uint16_t device, uint16_t op, const Args& args) {
    static_assert(sizeof(Args) <= kArgumentBytes && sizeof(Args) % 8 == 0);
    words_[0] = uint64_t{device} << 16 | op;
    memcpy(&words_[1], &args, sizeof(args));
  }
  bool operator==(const TensorMapKey& other) const { return words_ == other.words_; }
  uint64_t Hash() const;

 private:
  friend class TensorMapCache;
  TensorMapKey() = default;
  std::array<uint64_t, 1 + kArgumentBytes / 8> words_{};
};

// Any thread. Allocates 320 bytes for each of kEntries entries at the first Store.
class TensorMapCache {
 public:
  static constexpr size_t kEntries = 4096;  // a new map takes the place of an old one

  // Returns false if the map is not there.
  bool Find(const TensorMapKey& key, TensorMapWords* map);
  void Store(const TensorMapKey& key, const TensorMapWords& map);

 private:
  struct Entry {
    TensorMapKey key;  // all zero: no entry, because no operation is 0
    TensorMapWords map{};
  };
  std::mutex mutex_;
  std::unique_ptr<Entry[]> entries_;  // guarded by mutex_
};

}  // namespace detshare::shim
