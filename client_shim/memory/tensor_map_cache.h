// Tensor maps that were encoded before. Programs encode one for every launch, and what the driver
// makes of the same arguments on the same device is always the same: only the first time is asked
// of the daemon.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>

namespace detshare::shim {

using TensorMapWords = std::array<uint64_t, 16>;

// Everything that decides what a map is: the device, the operation, its arguments.
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

// Any thread. The maps take 320 bytes each, from the first on.
class TensorMapCache {
 public:
  static constexpr size_t kEntries = 4096;  // a new map takes the place of an old one

  bool Find(const TensorMapKey& key, TensorMapWords* map);
  void Store(const TensorMapKey& key, const TensorMapWords& map);

 private:
  struct Entry {
    TensorMapKey key;  // all zero: no entry, since no operation is 0
    TensorMapWords map{};
  };
  std::mutex mutex_;
  std::unique_ptr<Entry[]> entries_;  // guarded by mutex_
};

}  // namespace detshare::shim
